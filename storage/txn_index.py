"""`*.txnindex`: the aborted transactions that end in a segment; a read_committed fetch returns those it
overlaps.

Entry (34 bytes): version int16, producer id int64, first offset int64, last offset int64 (the marker's), last
stable offset int64 at the time of the abort. Entries ascend by last offset. The file exists only once there
is an entry: most segments never see an abort. Aborts are rare and the entries of a segment few, so they are
kept in memory once they were asked for, and the file is open only while an entry is written."""

from __future__ import annotations

import os
from bisect import bisect_left
from operator import attrgetter
from struct import Struct
from typing import NamedTuple

from storage.disk import DISK, Disk
from storage.index import CorruptIndex

CURRENT_VERSION = 0
_ENTRY = Struct(">hqqqq")
ENTRY_SIZE = _ENTRY.size


class AbortedTxn(NamedTuple):
    """One aborted transaction: its data lies in [first_offset, last_offset), its marker at last_offset."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnSearchResult(NamedTuple):
    """`is_complete`: no later segment can hold a transaction that began below the upper bound."""

    aborted: list[AbortedTxn]
    is_complete: bool


class TransactionIndex:
    """See the module's docstring. One owner, the event loop; only `flush` may run in a thread."""

    __slots__ = ("_entries", "_ops", "base_offset", "path")

    def __init__(self, path: str, base_offset: int, *, ops: Disk = DISK) -> None:
        self.path = path
        self.base_offset = base_offset
        self._ops = ops
        self._entries: list[AbortedTxn] | None = None

    def entries(self) -> list[AbortedTxn]:
        """All entries, oldest first; read from the file at the first call. A torn last entry is not one."""
        if self._entries is None:
            try:
                with open(self.path, "rb") as file:
                    data = file.read()
            except FileNotFoundError:
                data = b""
            found = []
            for position in range(0, len(data) - ENTRY_SIZE + 1, ENTRY_SIZE):
                version, *fields = _ENTRY.unpack_from(data, position)
                if version > CURRENT_VERSION:
                    raise CorruptIndex(
                        f"{self.path} has version {version} at byte {position}, known is {CURRENT_VERSION}"
                    )
                found.append(AbortedTxn(*fields))
            self._entries = found
        return self._entries

    @property
    def is_empty(self) -> bool:
        return not self.entries()

    def append(self, txn: AbortedTxn) -> None:
        """Add an entry; markers come in the order of their offsets, anything else is the caller's mistake."""
        entries = self.entries()
        if entries and entries[-1].last_offset >= txn.last_offset:
            raise ValueError(f"{self.path}: last offset {txn.last_offset} is not above {entries[-1].last_offset}")
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._ops.pwrite(fd, _ENTRY.pack(CURRENT_VERSION, *txn), len(entries) * ENTRY_SIZE)
        finally:
            os.close(fd)
        entries.append(txn)

    def collect(self, fetch_offset: int, upper_bound_offset: int) -> TxnSearchResult:
        """The aborted transactions with data in [fetch_offset, upper_bound_offset).

        Done as soon as an entry's last stable offset reaches the upper bound: every transaction that aborts
        later began at or after that point."""
        entries = self.entries()
        aborted = []
        # Entries that end below the fetch offset cannot overlap it, nor is their last stable offset above it.
        for txn in entries[bisect_left(entries, fetch_offset, key=attrgetter("last_offset")) :]:
            if txn.first_offset < upper_bound_offset:
                aborted.append(txn)
            if txn.last_stable_offset >= upper_bound_offset:
                return TxnSearchResult(aborted, True)
        return TxnSearchResult(aborted, False)

    def truncate_to(self, offset: int) -> None:
        """Remove the transactions whose marker is at `offset` or above."""
        entries = self.entries()
        keep = bisect_left(entries, offset, key=attrgetter("last_offset"))
        if keep < len(entries):
            os.truncate(self.path, keep * ENTRY_SIZE)
            del entries[keep:]

    def reset(self) -> None:
        """Remove all entries, whatever the file holds: a rebuild starts with this."""
        if os.path.exists(self.path):
            os.truncate(self.path, 0)
        self._entries = []

    def sanity_check(self) -> None:
        """Raise CorruptIndex if an entry cannot belong to this segment."""
        self._entries = None
        previous = self.base_offset - 1
        for txn in self.entries():
            if txn.last_offset < self.base_offset:
                raise CorruptIndex(f"{self.path} has {txn}, which ends below the base offset {self.base_offset}")
            if txn.last_offset <= previous:
                raise CorruptIndex(f"{self.path} has {txn} behind one that ends at {previous}")
            previous = txn.last_offset

    def flush(self) -> None:
        """Make the entries durable; nothing to do while there is no file."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            self._ops.fdatasync(fd)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Nothing is held open; forget the cached entries."""
        self._entries = None

    def delete(self) -> bool:
        """Remove the file; False if there was none."""
        self._entries = None
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            return False
        return True

    def rename_to(self, path: str) -> None:
        """Give the file, if there is one, another name."""
        if os.path.exists(self.path):
            self._ops.rename(self.path, path)
        self.path = path

    def update_parent_dir(self, directory: str) -> None:
        """The partition's directory was renamed."""
        self.path = os.path.join(directory, os.path.basename(self.path))
