"""The floor: the least that a Python process can do to take in batches and to give them out.

A blocking loop with one connection at a time: recv, CRC-32C over the batch, one pwrite, a prepared response; or recv,
a prepared head, sendfile. No event loop, no topics, no index, no sequence numbers, nothing decoded after the first
request of a connection. The raw client sends the same bytes here as to the brokers, with a client id that says which
log is meant.

`python -m bench.floor <port> <directory>` serves until it is killed.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from pathlib import Path

from crc32c import crc32c
from support.jars import ROOT
from support.processes import ServerProcess, free_ports, wait_until

from bench.raw import FETCH, FETCH_VERSION, PRODUCE, PRODUCE_VERSION
from protocol.header import encode_response_header, parse_request_header
from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from protocol.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse
from protocol.records import read_header

_MARK = 0x0102030405060708
_i32 = struct.Struct(">i")
_u32 = struct.Struct(">I")
_i64 = struct.Struct(">q")
_BUFFER = 8 << 20
_CRC_AT, _CRC_FROM = 17, 21  # in a batch: where the checksum stands, and where what it covers begins


class FloorProcess(ServerProcess):
    """The floor in a process of its own, as the brokers are."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        (port,) = free_ports(1)
        command = [sys.executable, "-m", "bench.floor", str(port), str(directory)]
        super().__init__("floor", command, port, directory / "floor.log", 30)

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}

    def start(self) -> None:
        self.launch()
        wait_until(self._is_listening, self.ready_timeout_s, "the floor listens")

    def _is_listening(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
        except OSError:
            return False
        return True


class FloorLog:
    """A file of equal batches."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self.end = 0
        self.batch_size = 0
        self.records = 0


def _patched(message: bytes) -> tuple[bytearray, int]:
    """A response as a whole frame, and where in it the 64-bit mark stands that each answer replaces."""
    frame = bytearray(_i32.pack(len(message)) + message)
    return frame, frame.index(_i64.pack(_MARK))


def _serve_produce(connection: socket.socket, buffer: memoryview, have: int, frame_size: int, log: FloorLog) -> None:
    *_, body = parse_request_header(buffer[4:frame_size])
    request = ProduceRequest.decode(buffer[4:frame_size], PRODUCE_VERSION, body)
    topic = request.topic_data[0]
    records = topic.partition_data[0].records
    header = read_header(records)
    log.batch_size, log.records, log.end = len(records), header.records_count, 0
    os.ftruncate(log.fd, 0)  # new pages for every run, as a broker's new topic has; rewriting old ones is far cheaper
    part = PartitionProduceResponse(index=0, base_offset=_MARK, log_start_offset=0)
    answer = ProduceResponse(responses=[TopicProduceResponse(name=topic.name, partition_responses=[part])])
    head = encode_response_header(PRODUCE, PRODUCE_VERSION, 1)
    response, mark = _patched(head + answer.encode(PRODUCE_VERSION))
    at = bytes(buffer[:frame_size]).index(bytes(records))
    size, fd, pwrite, offset = log.batch_size, log.fd, os.pwrite, 0
    while True:
        start = 0
        while have - start >= frame_size:
            batch = buffer[start + at : start + at + size]
            if crc32c(batch[_CRC_FROM:]) != _u32.unpack_from(batch, _CRC_AT)[0]:
                raise ValueError("CRC mismatch")
            pwrite(fd, batch, log.end)
            log.end += size
            _i64.pack_into(response, mark, offset)
            offset += log.records
            connection.sendall(response)
            start += frame_size
        if start:
            buffer[: have - start] = bytes(buffer[start:have])
            have -= start
        received = connection.recv_into(buffer[have:])
        if not received:
            return
        have += received


def _serve_fetch(connection: socket.socket, buffer: memoryview, have: int, frame_size: int, log: FloorLog) -> None:
    *_, body = parse_request_header(buffer[4:frame_size])
    request = FetchRequest.decode(buffer[4:frame_size], FETCH_VERSION, body)
    topic = request.topics[0]
    part = PartitionData(partition_index=0, high_watermark=1, log_start_offset=0, records=bytes(log.batch_size))
    answer = FetchResponse(responses=[FetchableTopicResponse(topic_id=topic.topic_id, partitions=[part])])
    message = encode_response_header(FETCH, FETCH_VERSION, 1) + answer.encode(FETCH_VERSION)
    frame = _i32.pack(len(message)) + message
    records_at = frame.index(bytes(log.batch_size))
    head, tail = frame[:records_at], frame[records_at + log.batch_size :]
    offset_at = _offset_position(request, frame_size)
    out, fd, size, sendfile = connection.fileno(), log.fd, log.batch_size, os.sendfile
    while True:
        start = 0
        while have - start >= frame_size:
            (offset,) = _i64.unpack_from(buffer, start + offset_at)
            position = offset // log.records * size
            left = size
            connection.send(head, socket.MSG_MORE)
            while left:
                left -= sendfile(out, fd, position + size - left, left)
            connection.sendall(tail)
            start += frame_size
        if start:
            buffer[: have - start] = bytes(buffer[start:have])
            have -= start
        received = connection.recv_into(buffer[have:])
        if not received:
            return
        have += received


def _offset_position(request: FetchRequest, frame_size: int) -> int:
    """Encodes the request again with a mark for its offset and looks where that lands."""
    request.topics[0].partitions[0].fetch_offset = _MARK
    body = request.encode(FETCH_VERSION)
    return frame_size - len(body) + body.index(_i64.pack(_MARK))


def serve(port: int, directory: Path) -> None:
    logs: dict[str, FloorLog] = {}
    buffer = memoryview(bytearray(_BUFFER))
    with socket.create_server(("127.0.0.1", port)) as listener:
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                have = 0
                while have < 4 or have < 4 + _i32.unpack_from(buffer)[0]:
                    received = connection.recv_into(buffer[have:])
                    if not received:
                        break
                    have += received
                else:
                    frame_size = 4 + _i32.unpack_from(buffer)[0]
                    key, _, _, client_id, _ = parse_request_header(buffer[4:frame_size])
                    name = client_id or "log"
                    if name not in logs:
                        logs[name] = FloorLog(directory / name)
                    loop = _serve_produce if key == PRODUCE else _serve_fetch
                    loop(connection, buffer, have, frame_size, logs[name])


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]))
