"""The index of aborted transactions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.java_gateway import JavaGateway

from storage.index import CorruptIndex
from storage.txn_index import AbortedTxn, TransactionIndex

TXNS = [AbortedTxn(0, 0, 10, 11), AbortedTxn(1, 5, 15, 13), AbortedTxn(2, 18, 35, 25), AbortedTxn(3, 32, 50, 40)]


@pytest.fixture
def make(tmp_path: Path) -> Callable[[], TransactionIndex]:
    return lambda: TransactionIndex(str(tmp_path / "00000000000000000000.txnindex"), 0)


def test_the_file_appears_with_the_first_entry(make: Callable[[], TransactionIndex]) -> None:
    index = make()
    assert index.is_empty
    index.flush()
    index.truncate_to(0)
    index.reset()
    index.sanity_check()
    assert index.collect(0, 100) == ([], False)
    assert not Path(index.path).exists()
    index.append(TXNS[0])
    assert Path(index.path).stat().st_size == 34
    assert make().entries() == [TXNS[0]]


def test_collect(make: Callable[[], TransactionIndex]) -> None:
    index = make()
    for txn in TXNS:
        index.append(txn)
    index.flush()
    assert index.collect(0, 100) == (TXNS, False)
    assert index.collect(0, 32) == (TXNS[:3], True), "the last stable offset of the fourth reaches 32"
    assert index.collect(0, 35) == (TXNS, True)
    assert index.collect(10, 35) == (TXNS, True)
    assert index.collect(11, 35) == (TXNS[1:], True)
    assert index.collect(20, 41) == (TXNS[2:], False)
    assert index.collect(51, 60) == ([], False)
    # The last stable offset exactly at the upper bound: done, not one further.
    assert index.collect(20, 40) == (TXNS[2:], True)
    assert index.collect(0, 11) == (TXNS[:1], True)


def test_entries_ascend(make: Callable[[], TransactionIndex]) -> None:
    index = make()
    index.append(TXNS[1])
    for txn in (TXNS[0], TXNS[1]):
        with pytest.raises(ValueError, match="not above"):
            index.append(txn)
    assert make().entries() == [TXNS[1]]


def test_truncate_reset_rename_delete(make: Callable[[], TransactionIndex]) -> None:
    index = make()
    for txn in TXNS:
        index.append(txn)
    index.truncate_to(51)
    assert index.entries() == TXNS
    index.truncate_to(50)
    assert index.entries() == make().entries() == TXNS[:3]
    index.append(TXNS[3])
    index.rename_to(index.path + ".deleted")
    index.close()
    assert index.entries() == TXNS
    index.reset()
    assert index.is_empty
    assert Path(index.path).stat().st_size == 0
    assert index.delete()
    assert not index.delete()
    index.rename_to(index.path + "x")  # nothing to rename


def test_a_torn_entry_is_none_and_is_overwritten(make: Callable[[], TransactionIndex]) -> None:
    index = make()
    index.append(TXNS[0])
    index.append(TXNS[1])
    with open(index.path, "r+b") as file:
        file.truncate(34 + 20)
    index = make()
    assert index.entries() == TXNS[:1]
    index.append(TXNS[2])
    assert make().entries() == [TXNS[0], TXNS[2]]


def test_sanity_check(make: Callable[[], TransactionIndex]) -> None:
    index = make()
    for txn in TXNS:
        index.append(txn)
    index.sanity_check()
    with pytest.raises(CorruptIndex, match="below the base offset 11"):
        TransactionIndex(index.path, 11).sanity_check()
    data = Path(index.path).read_bytes()
    Path(index.path).write_bytes(data[34:68] + data[:34])
    with pytest.raises(CorruptIndex, match="behind one"):
        make().sanity_check()
    Path(index.path).write_bytes(b"\x00\x01" + data[2:])
    with pytest.raises(CorruptIndex, match="version 1"):
        make().sanity_check()


@given(
    lengths=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=30),
    fetch=st.integers(0, 200),
    size=st.integers(0, 100),
)
def test_collect_equals_a_naive_scan(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[tuple[int, int]], fetch: int, size: int
) -> None:
    """Transactions as a log makes them: markers ascend, and nothing open begins below the last stable offset."""
    index = TransactionIndex(str(tmp_path_factory.mktemp("txn") / "i"), 0)
    last, txns = 0, []
    for producer, (length, gap) in enumerate(lengths):
        last += gap
        txns.append((producer, max(0, last - length), last))
    upper = fetch + size
    expected = []
    for number, (producer, first, last) in enumerate(txns):
        stable = min([later[1] for later in txns[number + 1 :] if later[1] <= last], default=last + 1)
        txn = AbortedTxn(producer, first, last, stable)
        index.append(txn)
        if last >= fetch and first < upper:
            expected.append(txn)
    assert index.collect(fetch, upper).aborted == expected


@pytest.mark.stock
def test_same_file_as_kafkas(jvm: JavaGateway, tmp_path: Path) -> None:
    log = jvm.jvm.org.apache.kafka.storage.internals.log
    ours = TransactionIndex(str(tmp_path / "ours"), 0)
    theirs = log.TransactionIndex(0, jvm.jvm.java.io.File(str(tmp_path / "theirs")))
    for txn in TXNS:
        ours.append(txn)
        theirs.append(log.AbortedTxn(*txn))
    for fetch, upper in (
        (0, 100),
        (0, 32),
        (10, 35),
        (11, 35),
        (20, 41),
        (51, 60),
        (20, 40),
        (0, 40),
        (0, 11),
        (0, 13),
    ):
        expected = theirs.collectAbortedTxns(fetch, upper)
        found = ours.collect(fetch, upper)
        assert [txn.lastOffset() for txn in expected.abortedTransactions()] == [t.last_offset for t in found.aborted]
        assert found.is_complete == expected.isComplete()
    theirs.flush()
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    ours.truncate_to(35)
    theirs.truncateTo(35)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    theirs.close()
    reader = log.TransactionIndex(0, jvm.jvm.java.io.File(str(tmp_path / "ours")))
    reader.sanityCheck()
    assert [txn.producerId() for txn in reader.allAbortedTxns()] == [0, 1]
    reader.close()
