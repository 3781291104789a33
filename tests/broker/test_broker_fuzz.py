"""Damaged requests and broken connections against a real broker process: it goes on serving, and stays small.

The seed is printed with a failure; BARNABAS_FUZZ_SEED repeats a run or tries another.
"""

from __future__ import annotations

import os
import random
import select
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from support.broker_process import BrokerProcess
from support.fuzz import TOPIC, Damaged, Mutator, RequestMaker
from support.wire import Wire, batch

from protocol.header import encode_request, response_header_version
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.unregister_broker import UnregisterBrokerRequest
from protocol.schema import Message

SEED = int(os.environ.get("BARNABAS_FUZZ_SEED", "20251"))
FRAMES = 10_500
BROKEN_CONNECTIONS = 1_050
STORE_EVERY = 100
ANSWER_TIMEOUT_S = 0.05
"""A damaged fetch may wait for long; its client does not."""
HUNG_TIMEOUT_S = 20

RSS_ALLOWANCE_KB = 12 * 1024
"""Between a third of the run and its end. A leak of one kilobyte per frame or connection would be 7.5 MB, on top of
what the allocator and the page tables of mapped indexes move about by themselves."""


@pytest.fixture
def fuzzed_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    # Topics that auto-creation makes out of damaged names would be honest growth; it is tested elsewhere.
    server = BrokerProcess(tmp_path / "broker", overrides={"auto.create.topics.enable": "false"})
    try:
        server.start()
        admin = KafkaAdminClient(bootstrap_servers=server.bootstrap)
        admin.create_topics([TOPIC], wait_for_metadata=True)
        admin.close()
        yield server
        server.stop()
    finally:
        server.close()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=HUNG_TIMEOUT_S)


def reset(sock: socket.socket) -> None:
    """Closes without a goodbye."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def ask(port: int, request: Message, version: int) -> bytes:
    """The response behind its header."""
    with connect(port) as sock:
        sock.sendall(encode_request(request.API_KEY, version, 1, "fuzz", request.encode(version)))
        with sock.makefile("rb") as stream:
            size = struct.unpack(">i", stream.read(4))[0]
            return stream.read(size)[4 + response_header_version(request.API_KEY, version) :]


def request_maker(port: int, rng: random.Random) -> RequestMaker:
    served = ApiVersionsResponse.decode(ask(port, ApiVersionsRequest(), 0), 0).api_keys
    wanted = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
    metadata = MetadataResponse.decode(ask(port, wanted, 12), 12)
    versions = {one.api_key: (one.min_version, one.max_version) for one in served}
    del versions[UnregisterBrokerRequest.API_KEY]  # a request that is understood ends the broker's service, rightly
    return RequestMaker(rng, versions, metadata.topics[0].topic_id)


def deliver(port: int, damaged: Damaged) -> None:
    """Sends, waits a moment for an answer, then says goodbye and expects the broker to do the same."""
    with connect(port) as sock, suppress(ConnectionResetError, BrokenPipeError):
        sock.sendall(damaged.data)
        if not damaged.is_open_ended:
            select.select([sock], [], [], ANSWER_TIMEOUT_S)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65536):
            pass


def rss_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


class Breaker:
    """Ways to be a bad client that need no clever bytes."""

    def __init__(self, port: int, rng: random.Random, maker: RequestMaker) -> None:
        self.port = port
        self.rng = rng
        self.maker = maker
        self.ways: tuple[Callable[[socket.socket], None], ...] = (
            self.say_nothing,
            self.cut_the_length,
            self.cut_the_request,
            self.speak_http,
            self.speak_tls,
            self.send_noise,
            self.announce_too_much,
            self.announce_less_than_nothing,
            self.ask_and_leave,
            self.ask_much_and_read_nothing,
            self.announce_a_lot_and_stop,
        )

    def run(self) -> None:
        sock = connect(self.port)
        try:
            with suppress(ConnectionResetError, BrokenPipeError):
                self.rng.choice(self.ways)(sock)
        finally:
            sock.close() if self.rng.random() < 0.5 else reset(sock)

    def say_nothing(self, sock: socket.socket) -> None:
        pass

    def cut_the_length(self, sock: socket.socket) -> None:
        sock.sendall(b"\0\0\0"[: self.rng.randrange(1, 4)])

    def cut_the_request(self, sock: socket.socket) -> None:
        frame = self.maker.frame()
        sock.sendall(frame[: self.rng.randrange(4, len(frame))])

    def speak_http(self, sock: socket.socket) -> None:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")

    def speak_tls(self, sock: socket.socket) -> None:
        sock.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + self.rng.randbytes(200))

    def send_noise(self, sock: socket.socket) -> None:
        sock.sendall(self.rng.randbytes(self.rng.randrange(1, 5000)))

    def announce_too_much(self, sock: socket.socket) -> None:
        sock.sendall(struct.pack(">i", 2**30) + b"x" * 100)

    def announce_less_than_nothing(self, sock: socket.socket) -> None:
        sock.sendall(struct.pack(">i", -self.rng.randrange(1, 2**31)))

    def ask_and_leave(self, sock: socket.socket) -> None:
        sock.sendall(self.maker.frame())

    def ask_much_and_read_nothing(self, sock: socket.socket) -> None:
        sock.sendall(encode_request(3, 9, 1, "fuzz", MetadataRequest(topics=None).encode(9)) * 200)

    def announce_a_lot_and_stop(self, sock: socket.socket) -> None:
        sock.sendall(struct.pack(">i", 90 * 2**20) + b"\0" * self.rng.randrange(1, 200_000))


def check_it_serves(server: BrokerProcess, topic: str) -> None:
    """What a user does: create a topic, write to it, read it back."""
    admin = KafkaAdminClient(bootstrap_servers=server.bootstrap)
    admin.create_topics([topic], wait_for_metadata=True)
    admin.close()
    producer = KafkaProducer(bootstrap_servers=server.bootstrap)
    for number in range(100):
        producer.send(topic, b"%d" % number, partition=0)
    producer.flush(timeout=HUNG_TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(
        bootstrap_servers=server.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=HUNG_TIMEOUT_S * 1000
    )
    consumer.assign([TopicPartition(topic, 0)])
    values = [next(consumer).value for _ in range(100)]
    consumer.close()
    assert values == [b"%d" % number for number in range(100)]


def store_one(port: int) -> None:
    """A good client between the bad ones: its record is acknowledged."""
    data = PartitionProduceData(index=0, records=batch(b"good"))
    request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])])
    with Wire(port) as wire:
        answer = wire.ask(request, 12)
    assert answer.responses[0].partition_responses[0].error_code == 0, answer


def check_what_was_stored(server: BrokerProcess, at_least: int) -> None:
    """Undamaged batches among the fuzz were stored, too; whatever got in must be readable, checksums included."""
    partition = TopicPartition(TOPIC, 0)
    consumer = KafkaConsumer(bootstrap_servers=server.bootstrap, consumer_timeout_ms=HUNG_TIMEOUT_S * 1000)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    start, end = consumer.position(partition), consumer.end_offsets([partition])[partition]
    assert end >= at_least
    offsets = [next(consumer).offset for _ in range(end - start)]
    consumer.close()
    assert offsets == list(range(start, end))


def test_damaged_requests_and_broken_connections(fuzzed_broker: BrokerProcess) -> None:
    server = fuzzed_broker
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    maker = request_maker(server.port, rng)
    mutator = Mutator(rng)
    breaker = Breaker(server.port, rng, maker)
    break_every = FRAMES // BROKEN_CONNECTIONS
    after_a_third = stored = 0
    for number in range(FRAMES):
        damaged = mutator.damage(maker.frame())
        try:
            deliver(server.port, damaged)
            if number % break_every == 0:
                breaker.run()
            if number % STORE_EVERY == 0:
                store_one(server.port)
                stored += 1
        except OSError as error:
            raise AssertionError(f"frame {number} ({damaged.description}) {damaged.data.hex()}: {error}") from error
        if number == FRAMES // 3:
            after_a_third = rss_kb(server.pid)
    growth = rss_kb(server.pid) - after_a_third
    print(f"{after_a_third} kB resident after a third, then {growth:+} kB")
    assert "Traceback" not in server.log_text
    check_it_serves(server, "after-the-storm")
    check_what_was_stored(server, stored)
    assert growth < RSS_ALLOWANCE_KB, f"{growth} kB more than after a third of the run ({after_a_third} kB)"


def test_every_served_api_is_drawn_and_every_drawn_request_is_valid(fuzzed_broker: BrokerProcess) -> None:
    """Guards the fuzzer: undamaged, its requests must be decodable, or it would only ever test the first check."""
    server = fuzzed_broker
    maker = request_maker(server.port, random.Random(SEED))
    versions = maker.versions
    drawn = set()
    for _ in range(40 * len(versions)):
        key, version, body = maker.request()
        drawn.add(key)
        deliver(server.port, Damaged(encode_request(key, version, 1, "valid", body), False, "nothing"))
    assert drawn == set(versions)
    closed = [line for line in server.log_text.splitlines() if "closed:" in line]
    assert [line for line in closed if "with acks=0 failed" not in line] == []
    assert "Traceback" not in server.log_text
