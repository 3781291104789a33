"""A small blocking client: creates a job's topics and sends records with timestamps of their own.

Spark's connector does the reading and nearly all the writing. It cannot create topics, and its sink cannot set a
record's timestamp, which generators and mirrors need. The versions asked for are served by every broker since
Apache Kafka 2.4, so there is no negotiation.
"""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from pipeline.errors import PipelineError
from protocol.errors import ErrorCode
from protocol.header import encode_request, response_header_version
from protocol.messages import response_class
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.schema import Message

T = TypeVar("T")

TIMEOUT_S = 30.0
PATIENCE_S = 60.0  # how long a broker may be away (a restart) before a send is given up
FIRST_CONTACT_S = 10.0  # ... and before someone who has only just named it is told that nobody answers there
RETRY_PAUSE_S = 0.1

CREATE_TOPICS_VERSION = 5
METADATA_VERSION = 9

RETRIABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # also: created a moment ago
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_CONTROLLER,
    }
)


class Retry(Exception):
    """The broker said something that a moment may change."""


class Connection:
    """One broker; requests are answered one at a time."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ids = itertools.count(1)

    def ask(self, request: Message, version: int) -> Any:
        body = request.encode(version)
        self._socket.sendall(encode_request(request.API_KEY, version, next(self._ids), "barnabas-pipeline", body))
        (size,) = struct.unpack(">i", self._read(4))
        data = self._read(size)
        start = 5 if response_header_version(request.API_KEY, version) else 4
        return response_class(request.API_KEY).decode(data, version, start)

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker closed the connection")
            data += more
        return bytes(data)

    def close(self) -> None:
        self._socket.close()


class Cluster:
    """Knows who leads what, keeps a connection per broker, and tries again when one goes away."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._connections: dict[tuple[str, int], Connection] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._leaders: dict[tuple[str, int], int] = {}
        self._partitions: dict[str, int] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def ask_any(self, request: Message, version: int) -> Any:
        failure: OSError | None = None
        for server in self.bootstrap_servers.split(","):
            host, _, port = server.strip().rpartition(":")
            if not port.isdigit():
                raise PipelineError(f"bootstrap server {server!r} is not host:port")
            try:
                return self._ask((host.strip("[]"), int(port)), request, version)
            except OSError as error:
                failure = error
        raise failure or PipelineError("no bootstrap server was given")

    def ask_leader(self, topic: str, partition: int, request: Message, version: int) -> Any:
        leader = self._leaders.get((topic, partition), -1)
        if leader not in self._brokers:
            raise Retry(f"{topic}-{partition} has no leader")
        return self._ask(self._brokers[leader], request, version)

    def _ask(self, address: tuple[str, int], request: Message, version: int) -> Any:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = Connection(*address)
        try:
            return connection.ask(request, version)
        except OSError:
            connection.close()
            del self._connections[address]
            raise

    def reach(self) -> None:
        """Whether a broker answers at all."""
        question = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        self.patiently(lambda: self.ask_any(question, METADATA_VERSION), FIRST_CONTACT_S)

    def patiently(self, attempt: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
        """The result of `attempt`, repeated while the broker is away or not ready."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                return attempt()
            except (OSError, Retry) as failure:
                if time.monotonic() > deadline:
                    raise PipelineError(f"no broker serves us at {self.bootstrap_servers}: {failure}") from failure
                self._partitions.clear()
                self._leaders.clear()
                time.sleep(RETRY_PAUSE_S)

    def partitions(self, topic: str) -> int:
        if topic not in self._partitions:
            self._refresh(topic)
        return self._partitions[topic]

    def _refresh(self, topic: str) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        response = self.ask_any(request, METADATA_VERSION)
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        (found,) = response.topics
        check(found.error_code, f"topic {topic}")
        for partition in found.partitions:
            self._leaders[topic, partition.partition_index] = partition.leader_id
        self._partitions[topic] = len(found.partitions)

    def create_topics(self, topics: Iterable[tuple[str, int, Mapping[str, str]]]) -> None:
        """(name, partitions, configs) each; those that exist stay as they are."""
        wanted = [
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=-1,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
            )
            for name, partitions, configs in topics
        ]
        if not wanted:
            return
        response = self.ask_any(CreateTopicsRequest(topics=wanted, timeout_ms=30_000), CREATE_TOPICS_VERSION)
        for result in response.topics:
            if result.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
                check(result.error_code, f"creating topic {result.name}: {result.error_message or ''}")


def reach(bootstrap_servers: str) -> None:
    """PipelineError unless a broker answers there."""
    cluster = Cluster(bootstrap_servers)
    try:
        cluster.reach()
    finally:
        cluster.close()


def check(error_code: int, what: str) -> None:
    if error_code == ErrorCode.NONE:
        return
    code = ErrorCode(error_code)
    if code in RETRIABLE:
        raise Retry(f"{what}: {code.name}")
    raise PipelineError(f"{what}: {code.name}")
