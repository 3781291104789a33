"""A client that costs next to nothing: requests encoded beforehand, responses only counted.

It exists to load a server to its limit, so that Barnabas and the floor can be compared; no real client is like it.
Every batch of a run is the same, so every request and every response of a run has one size, and the client finds the
responses by arithmetic. The first response is decoded and checked, and the caller checks the end offsets.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from dataclasses import dataclass
from typing import Any

from protocol.header import encode_request, response_header_version
from protocol.messages import response_class
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import build_batch
from protocol.uuids import Uuid

PRODUCE, FETCH = 0, 1
PRODUCE_VERSION = 12  # the last that names the topic
FETCH_VERSION = 16
DEPTH = 5  # requests on their way: what a Java producer allows itself (max.in.flight.requests.per.connection)
TIMEOUT_S = 30

_RECORD_SIZE = 1000
_RECORD_OVERHEAD = 10
_BATCH_HEADER = 61
BATCH_OVERHEAD = _BATCH_HEADER + _RECORD_OVERHEAD
_HEAD = 16  # of a response: its size is looked at, the rest is counted
_NO_OFFSET = 0x0102030405060708
_size = struct.Struct(">i")
_offset = struct.Struct(">q")


class WrongAnswer(RuntimeError):
    pass


class _Record:
    key = None
    headers = ()

    def __init__(self, value: bytes) -> None:
        self.value = value
        self.timestamp = int(time.time() * 1000)  # not a fixed one: retention would delete what is old in mid-run


@dataclass(frozen=True, slots=True)
class Batch:
    data: bytes
    records: int


def make_batch(size: int, record_size: int = _RECORD_SIZE) -> Batch:
    """Records of 1 KB, as many as fit into `size` bytes; of `size` itself when not even one fits."""
    count = max(1, (size - _BATCH_HEADER) // (record_size + _RECORD_OVERHEAD))
    value = os.urandom(min(record_size, max(1, size - BATCH_OVERHEAD)))
    return Batch(bytes(build_batch([_Record(value)] * count)), count)


def produce_frame(topic: str, records: bytes, client_id: str = "raw", partition: int = 0) -> bytes:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=records)])
    body = ProduceRequest(acks=1, timeout_ms=TIMEOUT_S * 1000, topic_data=[data]).encode(PRODUCE_VERSION)
    return encode_request(PRODUCE, PRODUCE_VERSION, 1, client_id, body)


def fetch_template(topic_id: Uuid, max_bytes: int, client_id: str = "raw") -> tuple[bytearray, int]:
    """A fetch without a session, and where in it the offset stands."""
    partition = FetchPartition(partition=0, fetch_offset=_NO_OFFSET, partition_max_bytes=max_bytes)
    topic = FetchTopic(topic_id=topic_id, partitions=[partition])
    request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=max_bytes, session_epoch=-1, topics=[topic])
    frame = bytearray(encode_request(FETCH, FETCH_VERSION, 1, client_id, request.encode(FETCH_VERSION)))
    return frame, frame.index(_offset.pack(_NO_OFFSET))


def run_produce(port: int, frame: bytes, requests: int, depth: int = DEPTH) -> float:
    """Sends `frame` again and again, `depth` at a time; seconds until the last is acknowledged."""
    with _connect(port) as connection:
        sendall, recv_into = connection.sendall, connection.recv_into
        buffer = bytearray(1 << 16)
        sendall(frame)
        first = read_frame(connection)
        code = _decode(PRODUCE, PRODUCE_VERSION, first).responses[0].partition_responses[0].error_code
        if code != 0:
            raise WrongAnswer(f"produce: error {code}")
        response_size, pending, acknowledged, sent = len(first), 0, 1, 1
        begin = time.perf_counter()
        while acknowledged < requests:
            while sent < requests and sent - acknowledged < depth:
                sendall(frame)
                sent += 1
            received = recv_into(buffer)
            if not received:
                raise WrongAnswer("produce: the connection was closed")
            done, pending = divmod(pending + received, response_size)
            acknowledged += done
        return (time.perf_counter() - begin) * requests / max(1, requests - 1)


def run_fetch(port: int, frame: bytearray, position: int, batch: Batch, stored: int, requests: int) -> float:
    """Fetches the `stored` batches of a log in turn, one per request; seconds until the last has come.

    The records are dropped in the kernel (MSG_TRUNC), so that the copy that every client makes does not hide what
    the server does.
    """
    with _connect(port) as connection:
        sendall, recv_into = connection.sendall, connection.recv_into
        buffer = bytearray(1 << 20)
        pack, records = _offset.pack_into, batch.records
        pack(frame, position, 0)
        sendall(frame)
        first = read_frame(connection)
        answer = _decode(FETCH, FETCH_VERSION, first).responses[0].partitions[0]
        if answer.error_code != 0 or len(answer.records) != len(batch.data):
            raise WrongAnswer(f"fetch: error {answer.error_code}, {len(answer.records or b'')} bytes")
        response_size, done, sent = len(first), 1, 1
        expected, rest = _size.pack(response_size - 4), response_size - _HEAD
        begin = time.perf_counter()
        while done < requests:
            while sent < requests and sent - done < DEPTH:
                pack(frame, position, sent % stored * records)
                sendall(frame)
                sent += 1
            if recv_into(buffer, _HEAD, socket.MSG_WAITALL) != _HEAD or buffer[:4] != expected:
                raise WrongAnswer(f"fetch {done} of {requests}: {_size.unpack_from(buffer)[0]} bytes")
            left = rest
            while left:
                received = recv_into(buffer, min(left, len(buffer)), socket.MSG_TRUNC | socket.MSG_WAITALL)
                if not received:
                    raise WrongAnswer("fetch: the connection was closed")
                left -= received
            done += 1
        return (time.perf_counter() - begin) * requests / max(1, requests - 1)


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A timeout makes every call poll first; the kernel's own does not.
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", TIMEOUT_S, 0))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", TIMEOUT_S, 0))
    return connection


def read_frame(connection: socket.socket) -> bytes:
    """Size prefix included."""
    data = connection.recv(4, socket.MSG_WAITALL)
    if len(data) < 4:
        raise WrongAnswer("the connection was closed")
    (size,) = _size.unpack(data)
    return data + connection.recv(size, socket.MSG_WAITALL)


def _decode(api_key: int, version: int, frame: bytes) -> Any:
    start = 9 if response_header_version(api_key, version) else 8
    return response_class(api_key).decode(frame, version, start)
