"""Sparse indexes of a segment: fixed-size, sorted entries in a memory-mapped file. Here the offset index.

Kafka gives every active index its full `segment.index.bytes` (10 MB) at once, as a sparse file. A write into
the hole of a sparse mapping on a full disk is a SIGBUS, which Python cannot catch, so the blocks have to be
reserved before they are mapped; and 4,000 partitions times 20 MB of reserved blocks is 80 GB. So an index
here starts empty, reserves one page at its first append and doubles up to the maximum. Nothing is opened or
mapped before it is needed: an idle partition costs neither a file descriptor nor a mapping. What a reader of
the files sees is the same as with Kafka: entries, then zeros while the segment is active, no tail once it was
trimmed.

Invariant: a mapping is never longer than its file. Every truncation unmaps first.

An index has one owner, the event loop. Only `flush` may be called from another thread; it touches no mapping.
"""

from __future__ import annotations

import mmap
import os
from abc import ABC, abstractmethod
from struct import Struct
from typing import NamedTuple

from storage.disk import DISK, Disk

MAX_RELATIVE_OFFSET = 0x7FFFFFFF  # offsets are stored as an int32 above the segment's base offset
_FIRST_RESERVATION = 4096  # one page; doubled with every growth
_WARM_BYTES = 8192  # Kafka's: look-ups near the end of the log touch the last two pages of the index only


class CorruptIndex(Exception):
    """The content of an index contradicts itself: it has to be rebuilt from its segment."""


class IndexFull(Exception):
    """An append to an index without a free slot: the segment should have been rolled before."""


class IndexOffsetOverflow(Exception):
    """The offset is below the index's base offset or too far above it for an int32."""


class OffsetPosition(NamedTuple):
    """The batch that holds `offset` as its last one, or a later batch, starts at or after byte `position`."""

    offset: int
    position: int


class MappedIndex(ABC):
    """What the offset index and the time index share: the file, its mapping, growing and trimming."""

    __slots__ = (
        "_capacity",
        "_last_known",
        "_map",
        "_max_entries",
        "_ops",
        "base_offset",
        "entries",
        "max_size",
        "path",
        "writable",
    )

    entry_size: int

    def __init__(
        self, path: str, base_offset: int, max_size: int = -1, writable: bool = True, *, ops: Disk = DISK
    ) -> None:
        """Opens nothing; the number of entries of an existing file is its size, as in Kafka.

        After a crash that counts the zeros behind the last entry too: `sanity_check` finds them, and recovery
        rebuilds the index. `max_size` is -1 for an index that is only read.
        """
        self.path = path
        self.base_offset = base_offset
        self.writable = writable
        self.max_size = max_size
        self._max_entries = max(0, max_size) // self.entry_size
        self._ops = ops
        self._map: mmap.mmap | None = None
        self._capacity = 0  # bytes of a *writable* mapping; 0 sends the next append to `reserve`
        if writable:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                size = os.fstat(fd).st_size
            finally:
                os.close(fd)
        else:
            size = os.stat(path).st_size
        self.entries = size // self.entry_size
        self._last_known = self.entries == 0
        if self._last_known:
            self._forget_last()

    # --- what the two kinds of index differ in

    @abstractmethod
    def _forget_last(self) -> None:
        """Set the cached last entry to that of an empty index."""

    @abstractmethod
    def _parse_last(self, entry: bytes) -> None:
        """Set the cached last entry from its bytes."""

    @abstractmethod
    def truncate_to(self, offset: int) -> None:
        """Remove the entries for `offset` and above."""

    @abstractmethod
    def sanity_check(self) -> None:
        """Raise CorruptIndex if the file cannot be right. Finds the zero tail that a crash leaves."""

    # --- sizes

    @property
    def max_entries(self) -> int:
        """How many entries the index may hold; a file that is already longer holds what it holds."""
        return max(self._max_entries, self.entries)

    @property
    def is_full(self) -> bool:
        """True when the segment has to be rolled because its index takes no more entries."""
        return self.entries >= self._max_entries

    @property
    def size_in_bytes(self) -> int:
        """Bytes of the entries, without what is reserved behind them."""
        return self.entries * self.entry_size

    def can_append_offset(self, offset: int) -> bool:
        """Whether `offset` is in the int32 range above the base offset; if not, the segment rolls first."""
        return 0 <= offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def resize(self, max_size: int) -> None:
        """Change the maximum size; the file itself grows with the next append. Never drops an entry."""
        self.max_size = max_size
        self._max_entries = max(0, max_size) // self.entry_size

    # --- the mapping

    def reserve(self, count: int = 1) -> None:
        """Make sure that the next `count` appends need no disk space.

        Raises OSError (ENOSPC) and leaves the index as it was when the disk is full; a log that calls this
        before it writes a batch never has a batch in its segment that its index could not take."""
        needed = (self.entries + count) * self.entry_size
        if needed <= self._capacity:
            return
        if not self.writable:
            raise ValueError(f"{self.path} was opened for reading only")
        length = max(_FIRST_RESERVATION, self._capacity)
        while length < needed:
            length *= 2
        # Whole entries, within the maximum, but with room for the one that closes a full time index.
        length = max(needed, min(length, self._max_entries * self.entry_size) // self.entry_size * self.entry_size)
        self._load_last()
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # From the start: a file that Kafka left behind, or a crash, may have holes before its end too.
            self._ops.fallocate(fd, 0, length)
            mapped = mmap.mmap(fd, length, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        finally:
            os.close(fd)
        self._unmap()
        self._map = mapped
        self._capacity = length

    def _mapped(self) -> mmap.mmap:
        """The mapping for look-ups: the writable one if there is one, else the existing entries read-only."""
        mapped = self._map
        if mapped is None:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                mapped = mmap.mmap(fd, self.entries * self.entry_size, mmap.MAP_SHARED, mmap.PROT_READ)
            except ValueError as error:  # shorter than it was: someone cut the file under us
                raise CorruptIndex(f"{self.path} is shorter than its {self.entries} entries: {error}") from None
            finally:
                os.close(fd)
            self._map = mapped
        return mapped

    def _unmap(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None
        self._capacity = 0

    def _entry_bytes(self, slot: int) -> bytes:
        """One entry, without mapping the file for it: at start-up every segment's last entry is asked for."""
        position = slot * self.entry_size
        if self._map is not None:
            return self._map[position : position + self.entry_size]
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            entry = os.pread(fd, self.entry_size, position)
        finally:
            os.close(fd)
        if len(entry) != self.entry_size:
            raise CorruptIndex(f"{self.path} ends in the middle of entry {slot}")
        return entry

    def _load_last(self) -> None:
        if not self._last_known:
            self._parse_last(self._entry_bytes(self.entries - 1))
            self._last_known = True

    def _search(self, key: Struct, offset_in_entry: int, target: int) -> int:
        """The last slot whose key is <= target, -1 if there is none. The keys ascend."""
        if self.entries == 0:
            return -1
        buffer = self._mapped()
        unpack = key.unpack_from
        size = self.entry_size
        low, high = 0, self.entries
        warm = high - _WARM_BYTES // size
        if warm > 0:
            if unpack(buffer, warm * size + offset_in_entry)[0] <= target:
                low = warm + 1
            else:
                high = warm
        while low < high:
            middle = (low + high) >> 1
            if unpack(buffer, middle * size + offset_in_entry)[0] <= target:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def _truncate_to_entries(self, entries: int) -> None:
        """Forget the entries from this slot on. The file keeps its length until trimmed, as in Kafka."""
        self.entries = entries
        self._last_known = entries == 0
        if entries == 0:
            self._forget_last()
        else:
            self._load_last()

    # --- the file

    def truncate(self) -> None:
        """Remove all entries; what a rebuild starts with."""
        self._truncate_to_entries(0)

    def reset(self) -> None:
        """Remove all entries and the file's bytes: a rebuild must not leave any of the old ones behind."""
        self._truncate_to_entries(0)
        self.trim()

    def trim(self) -> None:
        """Cut the file to its entries: done when the segment is rolled or closed."""
        self._unmap()
        if os.stat(self.path).st_size != self.size_in_bytes:
            os.truncate(self.path, self.size_in_bytes)

    def flush(self) -> None:
        """Make the entries durable. Safe in a thread: it has a descriptor of its own and uses no mapping."""
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._ops.fdatasync(fd)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Trim, if it was opened for writing, and let go of the file."""
        if self.writable:
            self.trim()
        else:
            self._unmap()

    def release(self) -> None:
        """Let go of mapping and descriptor without touching the file; the next use maps it again.

        For a log directory that failed, and for the segments that have not been read for long.
        """
        self._load_last()
        self._unmap()

    def delete(self) -> bool:
        """Remove the file; False if it was gone already."""
        self._unmap()
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            return False
        return True

    def rename_to(self, path: str) -> None:
        """Give the file another name (`.deleted`, `.cleaned`, `.swap`). Mappings follow the file."""
        self._ops.rename(self.path, path)
        self.path = path

    def update_parent_dir(self, directory: str) -> None:
        """The partition's directory was renamed."""
        self.path = os.path.join(directory, os.path.basename(self.path))


_OFFSET_ENTRY = Struct(">ii")
_RELATIVE_OFFSET = Struct(">i")
_pack_offset_entry = _OFFSET_ENTRY.pack_into


class OffsetIndex(MappedIndex):
    """`*.index`: from offsets to positions in the segment file. Entry: relative offset int32, position int32.

    Offsets strictly ascend. Only some batches have an entry (`index.interval.bytes`), so a reader starts at
    the entry found and scans forward."""

    __slots__ = ("_last_offset", "_last_position")

    entry_size = _OFFSET_ENTRY.size
    _last_offset: int
    _last_position: int

    def _forget_last(self) -> None:
        self._last_offset = self.base_offset
        self._last_position = 0

    def _parse_last(self, entry: bytes) -> None:
        relative, self._last_position = _OFFSET_ENTRY.unpack(entry)
        self._last_offset = self.base_offset + relative

    @property
    def last_offset(self) -> int:
        """Offset of the last entry, the base offset when there is none."""
        if not self._last_known:
            self._load_last()
        return self._last_offset

    def append(self, offset: int, position: int) -> None:
        """Add an entry. `offset` must be above the last one: an index never holds an offset twice."""
        entries = self.entries
        if entries >= self._max_entries:
            raise IndexFull(f"{self.path} is full with {entries} entries")
        if not self._last_known:
            self._load_last()
        if offset <= self._last_offset and entries:
            raise ValueError(f"offset {offset} is not above the last offset {self._last_offset} of {self.path}")
        relative = offset - self.base_offset
        if not 0 <= relative <= MAX_RELATIVE_OFFSET:
            raise IndexOffsetOverflow(f"offset {offset} does not fit {self.path} with base {self.base_offset}")
        at = entries * 8
        if at >= self._capacity:
            self.reserve()
        _pack_offset_entry(self._map, at, relative, position)  # type: ignore[arg-type]  # reserve() mapped it
        self._last_offset = offset
        self._last_position = position
        self.entries = entries + 1

    def lookup(self, offset: int) -> OffsetPosition:
        """The entry with the greatest offset <= `offset`; the start of the segment when there is none."""
        if not self._last_known:
            self._load_last()
        if offset >= self._last_offset:  # readers of the tail, the most frequent ones, need no search
            return OffsetPosition(self._last_offset, self._last_position)
        slot = self._search(_RELATIVE_OFFSET, 0, offset - self.base_offset)
        return self.entry(slot) if slot >= 0 else OffsetPosition(self.base_offset, 0)

    def entry(self, slot: int) -> OffsetPosition:
        """The entry in this slot."""
        if not 0 <= slot < self.entries:
            raise IndexError(f"entry {slot} of {self.path}, which has {self.entries}")
        relative, position = _OFFSET_ENTRY.unpack_from(self._mapped(), slot * 8)
        return OffsetPosition(self.base_offset + relative, position)

    def fetch_upper_bound_offset(self, start: OffsetPosition, fetch_size: int) -> OffsetPosition | None:
        """The first entry at or behind `start.position + fetch_size`: it bounds what a fetch returns."""
        if self.entries == 0:
            return None
        # Positions are whole numbers, so the first one >= x follows the last one <= x - 1.
        slot = self._search(_RELATIVE_OFFSET, 4, start.position + fetch_size - 1) + 1
        return self.entry(slot) if slot < self.entries else None

    def truncate_to(self, offset: int) -> None:
        slot = self._search(_RELATIVE_OFFSET, 0, offset - self.base_offset - 1)
        if slot + 1 < self.entries:
            self._truncate_to_entries(slot + 1)

    def sanity_check(self) -> None:
        size = os.stat(self.path).st_size
        if size % self.entry_size and not self._capacity:
            raise CorruptIndex(f"{self.path} has {size} bytes, not a multiple of {self.entry_size}")
        if self.entries == 0:
            return
        if self.last_offset < self.base_offset:
            raise CorruptIndex(f"{self.path} ends with offset {self._last_offset}, below {self.base_offset}")
        # Kafka leaves this to the time index; but offsets ascend, so a second entry is above the base offset.
        if self.entries > 1 and self._last_offset == self.base_offset:
            raise CorruptIndex(f"{self.path} ends with zeros: it was not trimmed")
