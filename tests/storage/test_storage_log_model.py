"""A log against a naive twin: a list. Whatever is done to it, and however it is stopped, they agree."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from support.fake_disk import FakeDisk
from support.logs import NOW, append, batch, contents, log_config, open_log

from protocol.records import iter_batches
from storage.errors import OffsetOutOfRange
from storage.log import Log

CONFIG = log_config(segment_bytes=600, index_interval_bytes=120, segment_index_bytes=96, flush_messages=1)

Batch = tuple[int, int, int]  # first offset, last offset, size


class Twin:
    """The log and the list. Every batch is flushed, because only then may a crash not take it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.disk = FakeDisk(directory)
        self.log = self.open(clean=False)
        self.batches: list[Batch] = []
        self.values: list[tuple[int, bytes | None]] = []
        self.serial = 0

    def open(self, *, clean: bool, start: int = 0, recovery_point: int = 0) -> Log:
        return open_log(
            self.directory,
            CONFIG,
            disk=self.disk,
            clean=clean,
            log_start_offset=start,
            recovery_point=recovery_point,
        )

    def append(self, count: int, size: int) -> None:
        self.serial += 1
        values = [b"%d-%d-" % (self.serial, index) + b"x" * size for index in range(count)]
        data = batch(*values, timestamp=NOW + self.serial)
        result = append(self.log, data)
        first = self.log.log_end_offset - count
        assert (result.first_offset, result.last_offset) == (first, first + count - 1)
        self.batches.append((first, first + count - 1, len(data)))
        self.values += [(first + index, value) for index, value in enumerate(values)]

    def roll(self) -> None:
        self.log.roll()

    def truncate(self, share: float) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        target = start + int((end - start) * share)
        self.log.truncate_to(target)
        self.log.flush_blocking()  # until then a crash may bring back what was cut
        self.batches = [one for one in self.batches if one[1] < target]
        kept = self.batches[-1][1] if self.batches else -1
        self.values = [one for one in self.values if one[0] <= kept]
        assert self.log.log_end_offset == target

    def advance_start(self, share: float) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        self.log.advance_high_watermark(end)
        self.log.advance_log_start(start + int((end - start) * share))
        self.values = [one for one in self.values if one[0] >= self.log.log_start_offset]

    def restart(self) -> None:
        self.log.close()
        start, end = self.log.log_start_offset, self.log.log_end_offset
        self.log = self.open(clean=True, start=start, recovery_point=end)
        if self.values or self.batches:  # a truncation into a batch leaves a gap that only memory knew of
            assert self.log.log_end_offset <= end

    def crash(self, surviving: int, spoil: bool, flush: bool) -> None:
        """What was flushed is there afterwards; what was not may be, but only as whole batches, in order."""
        if flush:
            self.log.flush_blocking()
        durable_end = self.log.recovery_point
        start = self.log.log_start_offset
        self.disk.crash(surviving=surviving, spoil_indexes=spoil)
        self.log = self.open(clean=False, start=start, recovery_point=0 if spoil else durable_end)
        # Of what was not flushed, whole batches may be missing: those at the end of a file. If that is the file of
        # a rolled segment, offsets are missing between it and the next, as with Kafka.
        found = contents(self.log)
        present = {offset for offset, _ in found}
        kept = [one for one in self.batches if one[1] in present]
        assert [one for one in self.batches if one[1] < durable_end and one[1] >= start] == [
            one for one in kept if one[1] < durable_end
        ]
        ranges = {at for one in kept for at in range(one[0], one[1] + 1)}
        assert found == [one for one in self.values if one[0] in ranges]
        self.batches, self.values = kept, found

    def check(self) -> None:
        log = self.log
        assert contents(log) == self.values
        log.advance_high_watermark(log.log_end_offset)
        by_offset = {at: one for one in self.batches for at in range(one[0], one[1] + 1)}
        for offset in range(log.log_start_offset, log.log_end_offset):
            expected = by_offset.get(offset) or next((one for one in self.batches if one[0] > offset), None)
            for limit in (0, 1, 61, 100, 250, 10_000):
                for min_one in (True, False):
                    self.check_read(offset, limit, min_one, expected)
        for offset in (log.log_start_offset - 1, log.log_end_offset + 1):
            try:
                log.read(offset, 100, end_offset=log.log_end_offset)
            except OffsetOutOfRange as error:
                assert (error.start_offset, error.end_offset) == (log.log_start_offset, log.log_end_offset)
            else:
                raise AssertionError(f"offset {offset} was readable")
        assert log.read(log.log_end_offset, 100, end_offset=log.log_end_offset).records is None

    def check_read(self, offset: int, limit: int, min_one: bool, expected: Batch | None) -> None:
        found = self.log.read(offset, limit, end_offset=self.log.log_end_offset, min_one=min_one).records
        if expected is None or (not min_one and limit < expected[2]):
            assert found is None
            return
        assert found is not None
        assert len(found) <= max(limit, expected[2])
        _, header = next(iter_batches(found.read()))
        assert (header.base_offset, header.last_offset) == expected[:2]


OPERATIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4), st.integers(0, 60)),
    st.tuples(st.just("append"), st.integers(1, 4), st.integers(0, 60)),
    st.tuples(st.just("append"), st.integers(1, 2), st.just(200)),
    st.tuples(st.just("roll")),
    st.tuples(st.just("truncate"), st.floats(0, 1)),
    st.tuples(st.just("advance_start"), st.floats(0, 1)),
    st.tuples(st.just("restart")),
    st.tuples(st.just("crash"), st.integers(0, 300), st.booleans(), st.booleans()),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(OPERATIONS, max_size=25))
def test_a_log_agrees_with_a_list(operations: list[tuple[str, ...]]) -> None:
    directory = Path(tempfile.mkdtemp())
    try:
        twin = Twin(directory)
        for name, *arguments in operations:
            getattr(twin, name)(*arguments)
        twin.check()
        twin.restart()
        twin.check()
    finally:
        shutil.rmtree(directory)


def test_a_tail_torn_at_every_byte_of_the_last_batch(tmp_path: Path) -> None:
    """Whatever part of the last batch reached the disk, the log ends before it, and goes on after a restart."""
    whole = len(batch(b"last" * 10))
    for surviving in range(whole + 1):
        directory = tmp_path / str(surviving)
        directory.mkdir()
        disk = FakeDisk(directory)
        log = open_log(directory, CONFIG, disk=disk)
        append(log, batch(b"one", b"two"))
        append(log, batch(b"three"))
        log.flush_blocking()
        append(log, batch(b"last" * 10))
        disk.crash(surviving=surviving)
        log = open_log(directory, CONFIG, disk=disk, recovery_point=3)
        survivors = [(0, b"one"), (1, b"two"), (2, b"three")]
        if surviving == whole:
            survivors.append((3, b"last" * 10))
        assert contents(log) == survivors
        assert append(log, batch(b"next")).first_offset == len(survivors)
        assert contents(log) == [*survivors, (len(survivors), b"next")]
