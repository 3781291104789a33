"""What goes into and comes out of a log: origins of appends, and the small values its operations return."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from storage.file_slice import FileSlice
from storage.txn_index import AbortedTxn


class AppendOrigin(Enum):
    """Who wrote the batch: it decides which checks apply and who chooses the offsets."""

    CLIENT = "client"  # a produce request: trusted with nothing
    COORDINATOR = "coordinator"  # our own group and transaction coordinators, which may write control batches
    RAFT_LEADER = "raft leader"  # the metadata log: offsets and epoch are in the batch already
    REPLICATION = "replication"  # a follower copying its leader byte for byte


class AppendResult(NamedTuple):
    """Offsets given to an append. For a `duplicate` these are the offsets of the first time it was stored."""

    first_offset: int
    last_offset: int
    log_append_time: int  # -1 unless the topic stamps records itself
    log_start_offset: int
    max_timestamp: int
    duplicate: bool = False


class LogRead(NamedTuple):
    """One read: a range of whole file bytes, whose last batch may be cut, as consumers expect.

    `records` is None when there is nothing below the limit at this offset. `aborted` is a list only for a
    read_committed read, and None otherwise: the two are different answers on the wire.
    """

    records: FileSlice | None
    first_offset: int
    log_start_offset: int
    aborted: list[AbortedTxn] | None = None


class TimestampAndOffset(NamedTuple):
    """One record found by time. The epoch is that of its batch, -1 where unknown."""

    timestamp: int
    offset: int
    leader_epoch: int = -1
