"""`*.timeindex`: from timestamps to offsets. Entry: timestamp int64, relative offset int32.

An entry (t, o) says: the greatest timestamp of the segment up to offset o is t, and o holds it. Both columns
ascend, the timestamps strictly, so a reader who wants the first record at or after t starts behind the
greatest entry below t."""

from __future__ import annotations

import os
from struct import Struct
from typing import NamedTuple

from storage.index import MAX_RELATIVE_OFFSET, CorruptIndex, IndexFull, IndexOffsetOverflow, MappedIndex

NO_TIMESTAMP = -1

_TIME_ENTRY = Struct(">qi")
_TIMESTAMP = Struct(">q")
_RELATIVE_OFFSET = Struct(">i")
_pack_time_entry = _TIME_ENTRY.pack_into


class TimestampOffset(NamedTuple):
    """A timestamp and the offset of a record that has it."""

    timestamp: int
    offset: int


class TimeIndex(MappedIndex):
    """See the module's docstring. The last slot is kept for the entry that a roll or a close adds."""

    __slots__ = ("_last_offset", "_last_timestamp")

    entry_size = _TIME_ENTRY.size
    _last_timestamp: int
    _last_offset: int

    def _forget_last(self) -> None:
        self._last_timestamp = NO_TIMESTAMP
        self._last_offset = self.base_offset

    def _parse_last(self, entry: bytes) -> None:
        self._last_timestamp, relative = _TIME_ENTRY.unpack(entry)
        self._last_offset = self.base_offset + relative

    @property
    def is_full(self) -> bool:
        """One slot before the file is: rolling a full segment must still record its greatest timestamp."""
        return self.entries >= self._max_entries - 1

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry, (NO_TIMESTAMP, base offset) when there is none."""
        if not self._last_known:
            self._load_last()
        return TimestampOffset(self._last_timestamp, self._last_offset)

    def maybe_append(self, timestamp: int, offset: int, skip_full: bool = False) -> None:
        """Add an entry, or do nothing when `timestamp` is that of the last entry.

        `skip_full` is for the closing entry of a segment. A timestamp or an offset below the last entry's is
        the caller's mistake and raises ValueError."""
        entries = self.entries
        if not skip_full and entries >= self._max_entries - 1:
            raise IndexFull(f"{self.path} is full with {entries} entries")
        if not self._last_known:
            self._load_last()
        if entries:
            if offset < self._last_offset:
                raise ValueError(f"offset {offset} is below the last offset {self._last_offset} of {self.path}")
            if timestamp < self._last_timestamp:
                raise ValueError(
                    f"timestamp {timestamp} is below the last timestamp {self._last_timestamp} of {self.path}"
                )
        if timestamp <= self._last_timestamp:
            return
        relative = offset - self.base_offset
        if not 0 <= relative <= MAX_RELATIVE_OFFSET:
            raise IndexOffsetOverflow(f"offset {offset} does not fit {self.path} with base {self.base_offset}")
        at = entries * 12
        if at >= self._capacity:
            self.reserve()
        _pack_time_entry(self._map, at, timestamp, relative)  # type: ignore[arg-type]  # reserve() mapped it
        self._last_timestamp = timestamp
        self._last_offset = offset
        self.entries = entries + 1

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The entry with the greatest timestamp <= `timestamp`; (NO_TIMESTAMP, base offset) if none has."""
        if not self._last_known:
            self._load_last()
        if timestamp >= self._last_timestamp:
            return TimestampOffset(self._last_timestamp, self._last_offset)
        slot = self._search(_TIMESTAMP, 0, timestamp)
        return self.entry(slot) if slot >= 0 else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def entry(self, slot: int) -> TimestampOffset:
        """The entry in this slot."""
        if not 0 <= slot < self.entries:
            raise IndexError(f"entry {slot} of {self.path}, which has {self.entries}")
        timestamp, relative = _TIME_ENTRY.unpack_from(self._mapped(), slot * 12)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def truncate_to(self, offset: int) -> None:
        # Searched by the offset below, so that all entries with `offset` go, should there be several.
        slot = self._search(_RELATIVE_OFFSET, 8, offset - self.base_offset - 1)
        if slot + 1 < self.entries:
            self._truncate_to_entries(slot + 1)

    def sanity_check(self) -> None:
        size = os.stat(self.path).st_size
        if size % self.entry_size and not self._capacity:
            raise CorruptIndex(f"{self.path} has {size} bytes, not a multiple of {self.entry_size}")
        if self.entries == 0:
            return
        last = self.last_entry
        (first_timestamp,) = _TIMESTAMP.unpack_from(self._entry_bytes(0))
        if last.timestamp < first_timestamp:
            raise CorruptIndex(f"{self.path} ends with timestamp {last.timestamp}, below its first, {first_timestamp}")
        if last.offset < self.base_offset:
            raise CorruptIndex(f"{self.path} ends with offset {last.offset}, below {self.base_offset}")
        if self.entries > 1 and last.timestamp == first_timestamp:
            raise CorruptIndex(f"{self.path} repeats timestamp {last.timestamp}: it was not trimmed")
