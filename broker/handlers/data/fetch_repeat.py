"""Fetch, when a request repeats the one before it but for its offset.

A consumer that reads one partition sends fetch after fetch with the same bytes, except for the correlation id, the
epoch of its session and the offset. Once two in a row were alike, those three are read from where they stand, and the
answer is a prepared response around a slice of the file. Whatever is not plain data (nothing to read yet, an error,
aborted transactions, a session that changed) takes the ordinary way, and nothing has been done about it before.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from broker.api import RequestContext
from broker.clock import now_ms
from broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchSession, FetchSessionCache, FetchTarget
from broker.network.transport import Part
from broker.partition import NO_EPOCH, Partition
from protocol.errors import ApiError
from protocol.header import encode_response_header
from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from protocol.varint import encode_uvarint
from storage.errors import OffsetOutOfRange, StorageError

READ_COMMITTED = 1

_AFTER_CORRELATION = 8  # API key, version, correlation id
_HEAD = Struct(">hh")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_MARK_32 = 0x01020304
_MARK_64 = 0x1112131415161718
_MARKS = (0x2122232425262728, 0x3132333435363738, 0x4142434445464748)
_MARKED = Struct(">qqq").pack(*_MARKS)
_RECORDS = b"\x51\x52\x53\x54\x55"


class Shape(NamedTuple):
    """The bytes of a fetch of one partition around what changes between two of them, and where those stand."""

    before_epoch: bytes
    before_offset: bytes
    rest: bytes
    epoch_at: int
    offset_at: int

    def fits(self, frame: memoryview) -> bool:
        before_epoch, before_offset, rest, epoch_at, offset_at = self
        after_offset = offset_at + 8
        return (
            len(frame) == after_offset + len(rest)
            and frame[_AFTER_CORRELATION:epoch_at] == before_epoch
            and frame[epoch_at + 4 : offset_at] == before_offset
            and frame[after_offset:] == rest
        )


def shape_of(frame: memoryview, request: FetchRequest, version: int) -> Shape | None:
    """None if the request is not of the kind that is worth remembering."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1 or request.forgotten_topics_data:
        return None
    partition = request.topics[0].partitions[0]
    if request.session_epoch == INITIAL_EPOCH or partition.last_fetched_epoch != NO_EPOCH:
        return None
    kept = request.session_epoch, partition.fetch_offset
    request.session_epoch, partition.fetch_offset = _MARK_32, _MARK_64
    body = request.encode(version)
    request.session_epoch, partition.fetch_offset = kept
    epoch_at, offset_at = body.find(_INT32.pack(_MARK_32)), body.find(_INT64.pack(_MARK_64))
    start = len(frame) - len(body)
    if not 0 <= epoch_at < offset_at or start < _AFTER_CORRELATION:
        return None
    shape = Shape(
        bytes(frame[_AFTER_CORRELATION:start]) + body[:epoch_at],
        body[epoch_at + 4 : offset_at],
        body[offset_at + 8 :],
        start + epoch_at,
        start + offset_at,
    )
    return shape if shape.fits(frame) else None  # an unknown tagged field, say, stands elsewhere after encoding


class RepeatedFetch:
    """Belongs to one connection, which asks it first. Made from a request that was answered in full."""

    __slots__ = (
        "_committed",
        "_head",
        "_leader_epoch",
        "_max_bytes",
        "_min_bytes",
        "_pack",
        "_partition",
        "_session",
        "_sessions",
        "_shape",
        "_tail",
        "_target",
        "_wanted",
        "is_stale",
    )

    def __init__(
        self,
        context: RequestContext,
        request: FetchRequest,
        shape: Shape,
        partition: Partition,
        session: FetchSession | None,
        target: FetchTarget | None,
    ) -> None:
        self._wanted = wanted = request.topics[0].partitions[0]
        self._head = _HEAD.pack(context.api_key, context.api_version)
        self._shape = shape
        self._partition = partition
        self._session = session
        self._target = target
        self._sessions: FetchSessionCache = context.broker.fetch_sessions
        self._leader_epoch = wanted.current_leader_epoch
        self._committed = request.isolation_level == READ_COMMITTED
        most = min(request.max_bytes, context.broker.config.fetch_max_bytes)
        self._max_bytes = min(wanted.partition_max_bytes, most)
        self._min_bytes = min(request.min_bytes, most) if request.max_wait_ms > 0 else 0
        self._pack, self._tail = self._prepared_response(context, request)
        self.is_stale = False

    def _prepared_response(
        self, context: RequestContext, request: FetchRequest
    ) -> tuple[Callable[[int, int, int, int, int], bytes], bytes]:
        """Packs correlation id, the three offsets and the size of the records into what stands before them."""
        part = PartitionData(
            partition_index=self._partition.index,
            high_watermark=_MARKS[0],
            last_stable_offset=_MARKS[1],
            log_start_offset=_MARKS[2],
            aborted_transactions=[] if self._committed else None,
            records=_RECORDS,
        )
        topic = FetchableTopicResponse(
            topic=request.topics[0].topic, topic_id=request.topics[0].topic_id, partitions=[part]
        )
        session_id = 0 if self._session is None else self._session.id
        version = context.api_version
        header_tags = encode_response_header(context.api_key, version, 0)[4:]
        message = header_tags + FetchResponse(session_id=session_id, responses=[topic]).encode(version)
        before, after = message.split(_MARKED)
        between, tail = after.split(encode_uvarint(len(_RECORDS) + 1) + _RECORDS)
        layout = Struct(f">ii{len(before)}sqqq{len(between)}s")
        pack, fixed = layout.pack, layout.size - 4 + len(tail)

        def packed(correlation_id: int, high_watermark: int, stable: int, log_start: int, records: int) -> bytes:
            length = encode_uvarint(records + 1)
            size = fixed + len(length) + records
            return pack(size, correlation_id, before, high_watermark, stable, log_start, between) + length

        return packed, tail

    def answer(self, frame: memoryview) -> list[Part] | None:
        """The parts of the response frame, or None: not such a request, or not such an answer."""
        shape = self._shape
        if frame[:4] != self._head or not shape.fits(frame):
            return None
        (epoch,) = _INT32.unpack_from(frame, shape.epoch_at)
        (offset,) = _INT64.unpack_from(frame, shape.offset_at)
        session, target = self._session, self._target
        if session is None or target is None:
            if epoch != FINAL_EPOCH:
                return None
        elif not self._sessions.holds(session) or session.partitions.get(target.key) is not target:
            self.is_stale = True  # also where a request in between, which waited, has exchanged the partition
            return None
        elif epoch != session.epoch or len(session.partitions) != 1:
            return None
        partition = self._partition
        try:
            log = partition.lead_or_raise(self._leader_epoch)
            high_watermark, stable = log.high_watermark, log.last_stable_offset
            end = stable if self._committed else high_watermark
            if offset >= end:
                return None
            found = log.read(offset, self._max_bytes, end_offset=end, min_one=True, isolation_committed=self._committed)
        except (ApiError, OffsetOutOfRange, StorageError):
            self.is_stale = True
            return None
        records = found.records
        if records is None or found.aborted or len(records) < self._min_bytes:
            return None
        log_start = log.log_start_offset
        if session is not None and target is not None:
            self._sessions.on_next(session, now_ms())
            target.on_answer(self._wanted, offset, high_watermark, log_start)
        (correlation_id,) = _INT32.unpack_from(frame, 4)
        head = self._pack(correlation_id, high_watermark, stable, log_start, len(records))
        return [head, records, self._tail]
