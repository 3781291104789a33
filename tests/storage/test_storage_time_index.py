"""The time index: its rules for entries, a naive twin, and Kafka's class."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

from storage.index import CorruptIndex, IndexFull, IndexOffsetOverflow
from storage.time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset

MAX = 10 * 1024 * 1024


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., TimeIndex]:
    def make(base_offset: int = 0, max_size: int = MAX, writable: bool = True) -> TimeIndex:
        return TimeIndex(str(tmp_path / f"{base_offset:020d}.timeindex"), base_offset, max_size, writable)

    return make


def test_empty(make: Callable[..., TimeIndex]) -> None:
    index = make(45)
    assert index.last_entry == index.lookup(-5) == index.lookup(10**13) == TimestampOffset(NO_TIMESTAMP, 45)
    index.sanity_check()


def test_lookup(make: Callable[..., TimeIndex]) -> None:
    index = make(100)
    for timestamp, offset in ((1000, 101), (2000, 105), (3000, 109)):
        index.maybe_append(timestamp, offset)
    assert index.lookup(999) == TimestampOffset(NO_TIMESTAMP, 100)
    assert index.lookup(1000) == index.lookup(1999) == TimestampOffset(1000, 101)
    assert index.lookup(2999) == TimestampOffset(2000, 105)
    assert index.lookup(3000) == index.lookup(2**62) == TimestampOffset(3000, 109)
    assert index.entry(1) == TimestampOffset(2000, 105)


def test_maybe_append(make: Callable[..., TimeIndex]) -> None:
    index = make(100)
    index.maybe_append(NO_TIMESTAMP, 100)
    assert index.entries == 0, "a batch without a timestamp has no place here"
    index.maybe_append(0, 101)
    index.maybe_append(0, 102)
    assert (index.entries, index.last_entry) == (1, TimestampOffset(0, 101)), "same time: nothing new"
    index.maybe_append(5, 101)  # the same offset is legal
    with pytest.raises(ValueError, match="offset 100 is below"):
        index.maybe_append(6, 100)
    with pytest.raises(ValueError, match="timestamp 4 is below"):
        index.maybe_append(4, 102)
    with pytest.raises(IndexOffsetOverflow):
        index.maybe_append(6, 100 + 2**31)
    assert index.last_entry == TimestampOffset(5, 101)


def test_the_last_slot_is_for_the_closing_entry(make: Callable[..., TimeIndex]) -> None:
    index = make(0, max_size=3 * 12)
    index.maybe_append(1, 1)
    assert not index.is_full
    index.maybe_append(2, 2)
    assert index.is_full
    with pytest.raises(IndexFull):
        index.maybe_append(3, 3)
    index.maybe_append(3, 3, skip_full=True)
    assert index.lookup(3) == TimestampOffset(3, 3)
    index.close()
    assert os.path.getsize(index.path) == 36


def test_truncate_to(make: Callable[..., TimeIndex]) -> None:
    index = make(100)
    for number in range(1, 10):
        index.maybe_append(number * 10, 100 + number)
    index.truncate_to(200)
    assert index.entries == 9
    index.truncate_to(105)
    assert index.last_entry == TimestampOffset(40, 104)
    index.maybe_append(45, 105)
    assert index.lookup(44) == TimestampOffset(40, 104)
    index.truncate_to(0)
    assert index.last_entry == TimestampOffset(NO_TIMESTAMP, 100)


def test_growth_keeps_whole_entries_and_a_crash_is_found_out(make: Callable[..., TimeIndex]) -> None:
    index = make(7)
    for number in range(400):
        index.maybe_append(1000 + number, 7 + number)
    assert os.path.getsize(index.path) % 12 == 0
    with pytest.raises(CorruptIndex, match="below its first"):
        make(7).sanity_check()
    index.close()
    reopened = make(7)
    reopened.sanity_check()
    assert (reopened.entries, reopened.last_entry) == (400, TimestampOffset(1399, 406))


def test_sanity_check_of_offsets_with_a_high_base(make: Callable[..., TimeIndex]) -> None:
    """Entries hold relative offsets; the check has to look at absolute ones."""
    index = make(10**9)
    index.maybe_append(5, 10**9 + 1)
    index.maybe_append(6, 10**9 + 2)
    index.close()
    make(10**9).sanity_check()
    with open(index.path, "r+b") as file:
        file.seek(12 + 8)
        file.write((-1).to_bytes(4, "big", signed=True))
    with pytest.raises(CorruptIndex, match="below 1000000000"):
        make(10**9).sanity_check()


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=1500),
    targets=st.lists(st.integers(-5, 20_000), min_size=1, max_size=40),
)
def test_lookup_equals_a_naive_search(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]], targets: list[int]
) -> None:
    index = TimeIndex(str(tmp_path_factory.mktemp("index") / "t"), 50, MAX)
    timestamp, offset = 0, 50
    model: list[tuple[int, int]] = []
    for more_time, more_offset in steps:
        timestamp, offset = timestamp + more_time, offset + more_offset
        index.maybe_append(timestamp, offset)
        if not model or timestamp > model[-1][0]:
            model.append((timestamp, offset))
    assert [index.entry(slot) for slot in range(index.entries)] == model
    for target in targets:
        slot = bisect_right(model, target, key=lambda entry: entry[0]) - 1
        assert index.lookup(target) == (model[slot] if slot >= 0 else (NO_TIMESTAMP, 50))
    cut = targets[0] % 3000
    index.truncate_to(cut)
    assert [index.entry(slot) for slot in range(index.entries)] == [e for e in model if e[1] < cut]
    index.release()


@pytest.mark.stock
@pytest.mark.parametrize("count", [0, 1, 900])
def test_same_file_as_kafkas(jvm: JavaGateway, tmp_path: Path, count: int) -> None:
    java = jvm.jvm.org.apache.kafka.storage.internals.log.TimeIndex
    ours = TimeIndex(str(tmp_path / "ours"), 5000, 12 * 1000)
    theirs = java(jvm.jvm.java.io.File(str(tmp_path / "theirs")), 5000, 12 * 1000, True)
    for number in range(count):
        # Every third repeats the timestamp before it: no entry.
        timestamp, offset = 1_700_000_000_000 + number - number % 3, 5000 + number
        ours.maybe_append(timestamp, offset)
        theirs.maybeAppend(timestamp, offset)
    for target in (0, 1_700_000_000_000, 1_700_000_000_100, 2**60):
        expected = theirs.lookup(target)
        assert ours.lookup(target) == (expected.timestamp(), expected.offset())
    ours.truncate_to(5800)
    theirs.truncateTo(5800)
    assert ours.last_entry == (theirs.lastEntry().timestamp(), theirs.lastEntry().offset())
    assert ours.is_full == theirs.isFull()
    if count > 1:
        for timestamp, offset in ((1, 9000), (2**60, 4999)):
            with pytest.raises(ValueError, match="below"):
                ours.maybe_append(timestamp, offset)
            with pytest.raises(Py4JJavaError):
                theirs.maybeAppend(timestamp, offset)
    ours.close()
    theirs.close()
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    theirs = java(jvm.jvm.java.io.File(str(tmp_path / "ours")), 5000, 12 * 1000, False)
    theirs.sanityCheck()
    assert theirs.entries() == ours.entries
    theirs.closeHandler()
