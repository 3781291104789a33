"""The offset index against a naive list, against Kafka's class, and at its edges: growth, crash, full disk."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import struct
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from py4j.java_gateway import JavaGateway

from storage.disk import Disk
from storage.index import CorruptIndex, IndexFull, IndexOffsetOverflow, OffsetIndex, OffsetPosition

MAX = 10 * 1024 * 1024


class FullDisk(Disk):
    """A disk that has no block left for anyone who reserves some."""

    __slots__ = ()

    def fallocate(self, fd: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., OffsetIndex]:
    def make(base_offset: int = 0, max_size: int = MAX, **options: object) -> OffsetIndex:
        return OffsetIndex(str(tmp_path / f"{base_offset:020d}.index"), base_offset, max_size, **options)  # type: ignore[arg-type]

    return make


def test_empty_index_answers_with_the_start_of_the_segment(make: Callable[..., OffsetIndex]) -> None:
    index = make(45)
    assert index.lookup(0) == index.lookup(45) == index.lookup(9999) == OffsetPosition(45, 0)
    assert (index.entries, index.last_offset, index.is_full) == (0, 45, False)
    assert os.path.getsize(index.path) == 0, "an idle partition reserves nothing"
    index.sanity_check()


def test_lookup_is_the_greatest_entry_not_above(make: Callable[..., OffsetIndex]) -> None:
    index = make(100)
    for offset, position in ((105, 500), (110, 1000), (120, 2000)):
        index.append(offset, position)
    assert index.lookup(99) == index.lookup(104) == OffsetPosition(100, 0)
    assert index.lookup(105) == index.lookup(109) == OffsetPosition(105, 500)
    assert index.lookup(110) == index.lookup(119) == OffsetPosition(110, 1000)
    assert index.lookup(120) == index.lookup(10**15) == OffsetPosition(120, 2000)
    with pytest.raises(IndexError):
        index.entry(3)


def test_appends_must_ascend_and_fit(make: Callable[..., OffsetIndex]) -> None:
    index = make(100)
    index.append(100, 0)  # the very first may be the base offset
    for offset in (99, 100):
        with pytest.raises(ValueError, match="not above"):
            index.append(offset, 10)
    index.append(100 + 2**31 - 1, 10)
    assert index.can_append_offset(100 + 2**31 - 1)
    assert not index.can_append_offset(100 + 2**31)
    assert not index.can_append_offset(99)
    with pytest.raises(IndexOffsetOverflow):
        index.append(100 + 2**31, 20)
    with pytest.raises(IndexOffsetOverflow):
        make(500).append(499, 0)
    assert index.entries == 2


def test_full(make: Callable[..., OffsetIndex]) -> None:
    index = make(0, max_size=8 * 5 + 7)
    for offset in range(5):
        assert not index.is_full
        index.append(offset, offset)
    assert index.is_full
    with pytest.raises(IndexFull):
        index.append(5, 5)
    assert os.path.getsize(index.path) == 40, "never beyond the maximum, rounded down to whole entries"
    index.resize(8 * 6)
    index.append(5, 5)
    assert index.is_full


def test_grows_by_doubling_and_is_trimmed(make: Callable[..., OffsetIndex]) -> None:
    index = make()
    sizes = set()
    for offset in range(2000):
        index.append(offset, offset * 7)
        sizes.add(os.path.getsize(index.path))
    assert sizes == {4096, 8192, 16384}
    assert os.stat(index.path).st_blocks * 512 >= 16384, "the blocks are there before they are mapped"
    index.trim()
    assert os.path.getsize(index.path) == 16000
    assert index.lookup(1234) == OffsetPosition(1234, 1234 * 7)
    index.append(2000, 14000)  # a log truncated back into this segment writes to it again
    index.close()
    assert os.path.getsize(index.path) == 16008
    again = make()
    assert (again.entries, again.last_offset) == (2001, 2000)
    assert again.lookup(2000) == OffsetPosition(2000, 14000)
    again.append(2001, 14007)
    assert again.lookup(2001) == OffsetPosition(2001, 14007)


def test_truncate_to(make: Callable[..., OffsetIndex]) -> None:
    index = make(100)
    for offset in range(110, 200, 10):
        index.append(offset, offset)
    index.truncate_to(200)
    assert index.entries == 9
    index.truncate_to(185)
    assert index.last_offset == 180
    index.truncate_to(180)
    assert index.last_offset == 170
    index.append(181, 181)
    assert index.lookup(500) == OffsetPosition(181, 181)
    index.truncate_to(100)
    assert (index.entries, index.last_offset) == (0, 100)
    index.append(101, 1)
    index.truncate()
    assert index.lookup(101) == OffsetPosition(100, 0)


def test_a_file_left_by_a_crash_counts_its_zeros_and_is_found_out(make: Callable[..., OffsetIndex]) -> None:
    index = make(50)
    index.append(60, 600)
    index.append(70, 700)
    crashed = make(50)  # another process finds the file as it is
    assert crashed.entries == 512
    with pytest.raises(CorruptIndex, match="zeros"):
        crashed.sanity_check()
    crashed.reset()
    assert (crashed.entries, os.path.getsize(crashed.path)) == (0, 0)
    crashed.append(60, 600)
    crashed.close()
    reopened = make(50)
    reopened.sanity_check()
    assert reopened.lookup(60) == OffsetPosition(60, 600)


def test_sanity_check_finds_a_torn_entry_and_a_negative_offset(make: Callable[..., OffsetIndex]) -> None:
    index = make(7)
    with open(index.path, "wb") as file:
        file.write(bytes(12))
    with pytest.raises(CorruptIndex, match="multiple"):
        make(7).sanity_check()
    with open(index.path, "wb") as file:
        file.write(struct.pack(">ii", -3, 5))
    with pytest.raises(CorruptIndex, match="below 7"):
        make(7).sanity_check()


def test_a_full_disk_is_an_error_not_a_signal(make: Callable[..., OffsetIndex]) -> None:
    index = make(0, ops=FullDisk())
    with pytest.raises(OSError, match="No space") as caught:
        index.append(1, 1)
    assert caught.value.errno == errno.ENOSPC
    assert (index.entries, index.lookup(1)) == (0, OffsetPosition(0, 0))
    with pytest.raises(OSError, match="No space"):
        index.reserve(3)


def test_reserve_keeps_its_promise(make: Callable[..., OffsetIndex]) -> None:
    index = make()
    index.reserve(600)
    index._ops = FullDisk()
    for offset in range(600):
        index.append(offset, offset)
    assert index.entries == 600


def test_read_only(make: Callable[..., OffsetIndex]) -> None:
    writer = make()
    writer.append(1, 10)
    writer.close()
    reader = make(writable=False)
    assert reader.lookup(5) == OffsetPosition(1, 10)
    with pytest.raises(ValueError, match="reading only"):
        reader.append(2, 20)
    reader.close()
    with pytest.raises(FileNotFoundError):
        make(99, writable=False)


def descriptors_in(directory: Path) -> int:
    """Of this process, whatever else it has open."""
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that the listing itself needed
            found += Path(os.readlink(f"/proc/self/fd/{fd}")).parent == directory
    return found


def test_idle_indexes_hold_no_descriptor(make: Callable[..., OffsetIndex], tmp_path: Path) -> None:
    indexes = [make(base) for base in range(20)]
    for index in indexes:
        index.append(index.base_offset, 1)
        index.append(index.base_offset + 1, 2)
        index.trim()
    reopened = [make(base) for base in range(20)]
    assert all(index.last_offset == index.base_offset + 1 for index in reopened)
    assert descriptors_in(tmp_path) == 0
    assert reopened[3].lookup(3) == OffsetPosition(3, 1)  # a look-up in mid-index maps
    assert descriptors_in(tmp_path) == 1
    reopened[3].release()
    assert descriptors_in(tmp_path) == 0


def test_a_file_that_was_cut_under_us_is_an_error_not_a_signal(make: Callable[..., OffsetIndex]) -> None:
    index = make()
    for offset in range(1, 1000):
        index.append(offset, offset)
    index.trim()
    os.truncate(index.path, 100)
    with pytest.raises(CorruptIndex, match="shorter"):
        index.lookup(3)


def test_rename_delete_and_move(make: Callable[..., OffsetIndex], tmp_path: Path) -> None:
    index = make()
    index.append(1, 10)
    index.append(2, 20)
    index.rename_to(index.path + ".deleted")
    assert index.lookup(1) == OffsetPosition(1, 10)
    (tmp_path / "moved").mkdir()
    os.rename(index.path, tmp_path / "moved" / os.path.basename(index.path))
    index.update_parent_dir(str(tmp_path / "moved"))
    index.flush()
    index.trim()
    assert index.delete()
    assert not index.delete()
    assert os.listdir(tmp_path / "moved") == []


def test_fetch_upper_bound(make: Callable[..., OffsetIndex]) -> None:
    index = make()
    assert index.fetch_upper_bound_offset(OffsetPosition(0, 0), 5) is None
    for offset in range(5):
        index.append(offset, offset * 10)
    start = OffsetPosition(0, 0)
    assert index.fetch_upper_bound_offset(start, 10) == OffsetPosition(1, 10)
    assert index.fetch_upper_bound_offset(start, 11) == OffsetPosition(2, 20)
    assert index.fetch_upper_bound_offset(OffsetPosition(3, 30), 10) == OffsetPosition(4, 40)
    assert index.fetch_upper_bound_offset(OffsetPosition(3, 30), 11) is None


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.integers(1, 50), min_size=1, max_size=2500),
    targets=st.lists(st.integers(-10, 130_000), min_size=1, max_size=50),
    base=st.sampled_from([0, 1, 2**40]),
)
def test_lookup_equals_a_naive_search(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], targets: list[int], base: int
) -> None:
    index = OffsetIndex(str(tmp_path_factory.mktemp("index") / "i"), base, MAX)
    offset, offsets = base, []
    for position, step in enumerate(steps):
        offset += step
        offsets.append(offset)
        index.append(offset, position + 1)
    for target in [*(base + target for target in targets), *offsets[::97]]:
        slot = bisect_right(offsets, target) - 1
        expected = OffsetPosition(offsets[slot], slot + 1) if slot >= 0 else OffsetPosition(base, 0)
        assert index.lookup(target) == expected
    index.release()


@pytest.mark.parametrize("count", [1022, 1023, 1024, 1025, 1026, 5000])
def test_lookup_on_both_sides_of_the_warm_section(make: Callable[..., OffsetIndex], count: int) -> None:
    """The search looks at the last 1,024 entries first. Generated lists are seldom long enough to leave them."""
    index = make(10)
    for slot in range(count):
        index.append(12 + slot * 2, slot + 1)
    for target in range(10, 12 + count * 2 + 2):
        slot = (target - 12) // 2
        expected = (12 + slot * 2, slot + 1) if slot < count else (12 + (count - 1) * 2, count)
        assert index.lookup(target) == (expected if slot >= 0 else (10, 0))


class IndexMachine(RuleBasedStateMachine):
    """Any sequence of appends, truncations, trims, reopenings: the index stays equal to a list."""

    directory: Path

    def __init__(self) -> None:
        super().__init__()
        self.path = str(self.directory / f"{id(self)}.index")
        Path(self.path).unlink(missing_ok=True)
        self.index = OffsetIndex(self.path, 1000, 8 * 700)
        self.model: list[tuple[int, int]] = []

    @precondition(lambda self: len(self.model) < 600)
    @rule(count=st.integers(1, 100), step=st.integers(1, 3))
    def append(self, count: int, step: int) -> None:
        for _ in range(count):
            offset = (self.model[-1][0] if self.model else 1000) + step
            self.index.append(offset, len(self.model))
            self.model.append((offset, len(self.model)))

    @rule(back=st.integers(0, 150))
    def truncate(self, back: int) -> None:
        offset = (self.model[-1][0] if self.model else 1000) - back
        self.index.truncate_to(offset)
        self.model = [entry for entry in self.model if entry[0] < offset]

    @rule()
    def trim(self) -> None:
        self.index.trim()

    @rule()
    def release(self) -> None:
        self.index.release()

    @rule()
    def reopen(self) -> None:
        self.index.close()
        self.index = OffsetIndex(self.path, 1000, 8 * 700)

    @rule(delta=st.integers(-3, 1900))
    def lookup(self, delta: int) -> None:
        below = [entry for entry in self.model if entry[0] <= 1000 + delta]
        assert self.index.lookup(1000 + delta) == (below[-1] if below else (1000, 0))

    @invariant()
    def same(self) -> None:
        assert self.index.entries == len(self.model)
        assert self.index.last_offset == (self.model[-1][0] if self.model else 1000)
        mapped: mmap.mmap | None = self.index._map
        assert mapped is None or len(mapped) <= os.path.getsize(self.path), "never longer than its file"

    def teardown(self) -> None:
        self.index.delete()


def test_any_sequence_of_operations(tmp_path: Path) -> None:
    machine = type("Machine", (IndexMachine,), {"directory": tmp_path})
    case = machine.TestCase
    case.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
    case().runTest()


@pytest.mark.stock
@pytest.mark.parametrize("count", [0, 1, 700])
def test_same_file_as_kafkas(jvm: JavaGateway, tmp_path: Path, count: int) -> None:
    ours = OffsetIndex(str(tmp_path / "ours.index"), 5000, MAX)
    java_file = jvm.jvm.java.io.File
    theirs = jvm.jvm.org.apache.kafka.storage.internals.log.OffsetIndex(
        java_file(str(tmp_path / "theirs.index")), 5000, MAX, True
    )
    for number in range(count):
        ours.append(5000 + number * 3, number * 4096)
        theirs.append(5000 + number * 3, number * 4096)
    for target in (4999, 5000, 5001, 5003, 5500, 9999):
        expected = theirs.lookup(target)
        assert ours.lookup(target) == (expected.offset(), expected.position())
    assert ours.is_full == theirs.isFull()
    ours.truncate_to(5300)
    theirs.truncateTo(5300)
    assert (ours.entries, ours.last_offset) == (theirs.entries(), theirs.lastOffset())
    ours.close()
    theirs.close()
    assert (tmp_path / "ours.index").read_bytes() == (tmp_path / "theirs.index").read_bytes()

    # And across: each reads the other's file.
    theirs = jvm.jvm.org.apache.kafka.storage.internals.log.OffsetIndex(
        java_file(str(tmp_path / "ours.index")), 5000, MAX, False
    )
    theirs.sanityCheck()
    assert theirs.entries() == ours.entries
    reader = OffsetIndex(str(tmp_path / "theirs.index"), 5000, writable=False)
    reader.sanity_check()
    assert reader.last_offset == theirs.lastOffset()
    theirs.closeHandler()


@pytest.mark.stock
def test_an_active_file_of_kafka_is_taken_over(jvm: JavaGateway, tmp_path: Path) -> None:
    """Kafka preallocates 10 MB of hole; after its crash our index has to be rebuilt in that same file."""
    path = str(tmp_path / "0.index")
    theirs = jvm.jvm.org.apache.kafka.storage.internals.log.OffsetIndex(jvm.jvm.java.io.File(path), 0, MAX, True)
    theirs.append(10, 100)
    theirs.append(20, 200)
    theirs.flush()
    assert os.path.getsize(path) == MAX
    ours = OffsetIndex(path, 0, MAX)
    assert ours.is_full
    with pytest.raises(CorruptIndex):
        ours.sanity_check()
    ours.truncate()
    ours.append(10, 100)
    ours.close()
    assert Path(path).read_bytes() == struct.pack(">ii", 10, 100)
    theirs.closeHandler()
