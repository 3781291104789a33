"""A stream of changes to a cluster's metadata, and the memory of which of them were acknowledged."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from support.wire import ask

from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.metadata import MetadataRequest, MetadataResponse

REQUEST_TIMEOUT_MS = 8_000


class ChangeStream(threading.Thread):
    """Creates topics, and alters a setting of each, one after the other, through brokers in turn.

    A change whose outcome is unknown (a time-out) may or may not be there; one that was acknowledged must be.
    """

    def __init__(self, ports: Sequence[int], prefix: str = "s") -> None:
        super().__init__(daemon=True)
        self.created: list[str] = []
        self.altered: dict[str, str] = {}
        self.unknown: list[str] = []
        self.gaps: list[float] = []
        self.failure: BaseException | None = None
        self._ports = list(ports)
        self._prefix = prefix
        self._ended = threading.Event()

    def stop(self) -> None:
        self._ended.set()
        self.join(60)
        assert not self.is_alive()
        if self.failure is not None:
            raise self.failure

    def run(self) -> None:
        try:
            number = 0
            last = time.monotonic()
            while not self._ended.is_set():
                port = self._ports[number % len(self._ports)]
                name = f"{self._prefix}{number}"
                number += 1
                if self._create(port, name) and self._alter(port, name, str(1_000_000 + number)):
                    now = time.monotonic()
                    self.gaps.append(now - last)
                    last = now
        except BaseException as error:
            self.failure = error

    def _create(self, port: int, name: str) -> bool:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=REQUEST_TIMEOUT_MS)
        code = self._code(port, request, lambda response: response.topics[0].error_code)
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):  # the latter: its first try was committed
            self.created.append(name)
            return True
        self.unknown.append(f"create {name}: {code}")
        return False

    def _alter(self, port: int, name: str, value: str) -> bool:
        resource = AlterConfigsResource(
            resource_type=2,
            resource_name=name,
            configs=[AlterableConfig(name="retention.ms", config_operation=0, value=value)],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        code = self._code(port, request, lambda response: response.responses[0].error_code)
        if code == ErrorCode.NONE:
            self.altered[name] = value
            return True
        self.unknown.append(f"alter {name}: {code}")
        return False

    def _code(self, port: int, request: Any, pick: Any) -> ErrorCode:
        try:
            return ErrorCode(pick(ask(port, request, timeout_s=REQUEST_TIMEOUT_MS / 1000 + 25)))
        except OSError:
            return ErrorCode.NETWORK_EXCEPTION


def topics_known_to(port: int) -> set[str]:
    response = ask(port, MetadataRequest(topics=None), 12)
    assert isinstance(response, MetadataResponse)
    return {topic.name or "" for topic in response.topics}


def settings_known_to(port: int, topics: Sequence[str], name: str = "retention.ms") -> dict[str, str]:
    resources = [
        DescribeConfigsResource(resource_type=2, resource_name=topic, configuration_keys=[name]) for topic in topics
    ]
    response = ask(port, DescribeConfigsRequest(resources=resources))
    return {result.resource_name: result.configs[0].value for result in response.results if result.error_code == 0}
