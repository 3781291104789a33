"""Clients that vanish without a goodbye leave nothing behind in a real broker."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

from support.broker_process import BrokerProcess
from support.processes import wait_until
from support.wire import Wire

from protocol.header import encode_request
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.metadata import MetadataRequest

CLIENTS = 50
IDLE_S = 40


def descriptors(broker: BrokerProcess) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd"))


def send_and_reset(port: int, data: bytes) -> None:
    """The bytes and the reset are there before the broker looks at either."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(data)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_a_reset_behind_the_beginning_of_a_request_frees_the_connection(tmp_path: Path) -> None:
    """The story: a long run of the fuzzer showed memory that grew with every frame. uvloop tells of an error
    once and then no more; the one receive that followed took the bytes before the reset, so that the connection
    looked alive until connections.max.idle.ms was over.
    """
    broker = BrokerProcess(tmp_path, extra={"connections.max.idle.ms": str(IDLE_S * 1000)})
    try:
        broker.start()
        with Wire(broker.port) as wire:
            assert wire.ask(MetadataRequest(topics=[]), 12).brokers
        before = descriptors(broker)
        whole = encode_request(18, 0, 1, "gone", ApiVersionsRequest().encode(0))
        for number in range(CLIENTS):
            send_and_reset(broker.port, (whole[:3], whole[:9], struct.pack(">i", 10**7) + bytes(50_000))[number % 3])
        with Wire(broker.port) as wire:
            assert wire.ask(MetadataRequest(topics=[]), 12).brokers, "the broker has seen them all"
        wait_until(lambda: descriptors(broker) <= before, IDLE_S / 2, "the connections of those who left are closed")
        broker.stop()
        assert "Traceback" not in broker.log_text
    finally:
        broker.close()
