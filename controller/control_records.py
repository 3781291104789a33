"""Batches as the core sees them, and the control records among them: leader changes, voters, kraft.version."""

from __future__ import annotations

from controller.raft.types import Batch, ControlRecord, KRaftVersionChange, LeaderChange, VotersChange
from controller.voters import from_record, to_record
from protocol.errors import DecodeError
from protocol.messages.kraft_version_record import KRaftVersionRecord
from protocol.messages.leader_change_message import LeaderChangeMessage, Voter
from protocol.messages.voters_record import VotersRecord
from protocol.records import (
    ControlType,
    check_crc,
    control_records_batch,
    iter_batches,
    iter_records,
    parse_control_key,
)


def parse_batches(data: bytes | memoryview) -> tuple[Batch, ...]:
    """Whole batches, in order, each with its bytes as payload; a cut one at the end is left out.

    Every checksum is verified before the core hears of a batch: what it accepts goes into the log. DecodeError.
    """
    view = memoryview(data)
    found = []
    for position, header in iter_batches(view):
        batch = view[position : position + header.size]
        if not check_crc(batch, 0, header):
            raise DecodeError(f"the batch at offset {header.base_offset} does not match its checksum")
        control = read_control(batch) if header.is_control else ()
        found.append(
            Batch(header.base_offset, header.next_offset, header.partition_leader_epoch, control, payload=batch)
        )
    return tuple(found)


def read_control(batch: memoryview) -> tuple[ControlRecord, ...]:
    """What concerns the quorum; other control records are stepped over."""
    found: list[ControlRecord] = []
    for record in iter_records(batch):
        kind, value = parse_control_key(record.key), record.value or b""
        if kind is ControlType.LEADER_CHANGE:
            version = int.from_bytes(value[:2], "big")
            change = LeaderChangeMessage.decode(value, min(version, LeaderChangeMessage.MAX_VERSION))
            found.append(
                LeaderChange(
                    change.leader_id,
                    tuple(voter.voter_id for voter in change.voters),
                    tuple(voter.voter_id for voter in change.granting_voters),
                )
            )
        elif kind is ControlType.KRAFT_VERSION:
            found.append(KRaftVersionChange(KRaftVersionRecord.decode(value, 0).k_raft_version))
        elif kind is ControlType.KRAFT_VOTERS:
            found.append(VotersChange(from_record(VotersRecord.decode(value, 0))))
    return tuple(found)


def build_control_batch(batch: Batch, now_ms: int) -> bytearray:
    """The bytes of a batch that the core itself wants written."""
    records = [_encode(record) for record in batch.control]
    assert len(records) == batch.end_offset - batch.base_offset, "a control batch has one offset per record"
    return control_records_batch(records, now_ms, batch.epoch, batch.base_offset)


def _encode(record: ControlRecord) -> tuple[ControlType, bytes]:
    if isinstance(record, LeaderChange):
        change = LeaderChangeMessage(
            version=0,
            leader_id=record.leader_id,
            voters=[Voter(voter_id=voter) for voter in record.voters],
            granting_voters=[Voter(voter_id=voter) for voter in record.granting_voters],
        )
        return ControlType.LEADER_CHANGE, change.encode(0)
    if isinstance(record, VotersChange):
        return ControlType.KRAFT_VOTERS, to_record(record.voters).encode(0)
    return ControlType.KRAFT_VERSION, KRaftVersionRecord(version=0, k_raft_version=record.kraft_version).encode(0)
