"""Produce, when a request repeats the one before it but for its records.

A producer under load sends request after request to one partition: same version, client, acks, time-out and topic, with
new records and the next correlation id. Once two requests in a row were alike, what they have in common is kept as
bytes. A further one that begins with those bytes needs no decoding, no messages and no encoding: its records go to
the partition, the offsets they got go into a prepared response. Whatever differs (another topic, several partitions,
tagged fields, a transaction, a flush that is due) takes the ordinary way.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from broker.api import RequestContext
from broker.clock import now_ms
from broker.network.transport import Part
from broker.partition import Partition
from protocol.errors import ApiError, DecodeError
from protocol.header import encode_response_header
from protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.records import HEADER_SIZE
from protocol.records.header import ATTRIBUTES_LOW_BYTE, TRANSACTIONAL_FLAG
from protocol.varint import decode_uvarint, encode_uvarint
from storage.errors import StorageError

FIRST_FLEXIBLE_VERSION = 9  # before it, lengths are of another form
_NO_TAGS = b"\0\0\0"  # behind the records: those of the partition, the topic and the request
_AFTER_CORRELATION = 8  # API key, version, correlation id
_HEAD = Struct(">hh")
_CORRELATION = Struct(">i")
_PREFIX = Struct(">ii")
_MARKS = (0x0102030405060708, 0x1112131415161718, 0x2122232425262728)
_MARKED = Struct(">qqq").pack(*_MARKS)

Refuse = Callable[[RequestContext, ProduceRequest, Partition, ApiError | StorageError], ProduceResponse]
"""Shapes the response to a request of one partition that was refused."""


def common_prefix(context: RequestContext, frame: memoryview, request: ProduceRequest) -> bytes | None:
    """What a request like this one begins with, from the client id to the length of the records; None if it is not
    of the kind that is worth remembering."""
    if context.api_version < FIRST_FLEXIBLE_VERSION or request.acks not in (-1, 1):
        return None
    if request.transactional_id is not None or len(request.topic_data) != 1:
        return None
    partitions = request.topic_data[0].partition_data
    if len(partitions) != 1 or not partitions[0].records:
        return None
    size = len(partitions[0].records)
    start = len(frame) - len(_NO_TAGS) - size
    length = encode_uvarint(size + 1)
    end_of_prefix = start - len(length)
    if frame[-len(_NO_TAGS) :] != _NO_TAGS or frame[end_of_prefix:start] != length:
        return None
    return bytes(frame[_AFTER_CORRELATION:end_of_prefix])


def answers_at_once(partition: Partition, acks: int) -> bool:
    """Neither replicas nor a flush have to be waited for."""
    return (acks != -1 or partition.commits_at_once) and not partition.log.rules.flushes


class RepeatedProduce:
    """Belongs to one connection, which asks it first. `context` is that of the request it was made from."""

    __slots__ = (
        "_acks",
        "_context",
        "_head",
        "_pack",
        "_partition",
        "_prefix",
        "_refuse",
        "_request",
        "_start",
        "is_stale",
    )

    def __init__(
        self,
        context: RequestContext,
        request: ProduceRequest,
        prefix: bytes,
        partition: Partition,
        refuse: Refuse,
    ) -> None:
        self._context = context
        self._request = request
        self._prefix = prefix
        self._head = _HEAD.pack(context.api_key, context.api_version)
        self._start = _AFTER_CORRELATION + len(prefix)
        self._partition = partition
        self._acks = request.acks
        self._refuse = refuse
        self._pack = self._prepared_response()
        self.is_stale = False
        """Something went wrong: the next request is to be looked at in full."""
        request.topic_data[0].partition_data[0].records = None  # a view of the receive buffer, which is not ours

    def _prepared_response(self) -> Callable[[int, int, int, int], bytes]:
        """Packs correlation id, base offset, append time and log start offset into a frame that is otherwise done."""
        topic = self._request.topic_data[0]
        part = PartitionProduceResponse(
            index=self._partition.index, base_offset=_MARKS[0], log_append_time_ms=_MARKS[1], log_start_offset=_MARKS[2]
        )
        answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[part])
        header_tags, body = self._encoded(0, ProduceResponse(responses=[answer]))
        before, after = (header_tags + body).split(_MARKED)
        layout = Struct(f">ii{len(before)}sqqq{len(after)}s")
        pack, size = layout.pack, layout.size - 4
        return lambda correlation_id, offset, time_ms, log_start: pack(
            size, correlation_id, before, offset, time_ms, log_start, after
        )

    def _encoded(self, correlation_id: int, response: ProduceResponse) -> tuple[bytes, bytes]:
        """What follows the correlation id in the header, and the body."""
        version = self._context.api_version
        return encode_response_header(self._context.api_key, version, correlation_id)[4:], response.encode(version)

    def answer(self, frame: memoryview) -> list[Part] | None:
        """The response frame, or None: this is another request, and nothing has been done about it."""
        start = self._start
        if frame[:4] != self._head or frame[_AFTER_CORRELATION:start] != self._prefix or frame[-3:] != _NO_TAGS:
            return None
        try:
            size, start = decode_uvarint(frame, start)
        except (DecodeError, IndexError):
            return None
        end = start + size - 1
        if size <= HEADER_SIZE or end != len(frame) - 3 or frame[start + ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_FLAG:
            return None
        partition = self._partition
        if not answers_at_once(partition, self._acks):
            self.is_stale = True  # another replica, a setting, or another partition of that name since
            return None
        (correlation_id,) = _CORRELATION.unpack_from(frame, 4)
        try:
            done = partition.append(frame[start:end], now_ms(), acks=self._acks)
        except (ApiError, StorageError) as error:
            self.is_stale = True
            tags, body = self._encoded(correlation_id, self._refuse(self._context, self._request, partition, error))
            return [_PREFIX.pack(4 + len(tags) + len(body), correlation_id) + tags + body]
        return [self._pack(correlation_id, done.first_offset, done.log_append_time, done.log_start_offset)]
