"""Raw requests to two servers, and their answers as transcripts that can be compared line by line."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from support.processes import POLL_INTERVAL_S
from support.wire import Wire

from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.schema import Message, Struct
from protocol.uuids import Uuid

_MEMBER_ID = re.compile(r"\b([\w.]+(?:-[a-z]+)*)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_SETTLE_TIMEOUT_S = 20  # a coordinator that reads its log on two busy cores

# A group's members come in the order of a hash map.
_LEFT_OUT = frozenset(("throttle_time_ms",))
_TEXTS = frozenset(("error_message", "batch_index_error_message"))
_UNORDERED = frozenset(("members", "groups", "coordinators"))


class Talk:
    """One connection (more where two members wait at once) and what was said over it."""

    def __init__(self, port: int, generic_texts: frozenset[str] | None = None) -> None:
        """`generic_texts` are those that a client has itself for each code: told or left out, the user sees the same.
        Without them texts are not compared at all.
        """
        self.port = port
        self.wire = Wire(port)
        self.lines: list[str] = []
        self._generic_texts = generic_texts
        self._names: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.wire.socket.close()

    def call(self, name: str, value: str | Uuid) -> None:
        """Shows `value` as `<name>`: an id that the server made up."""
        self._names[str(value)] = f"<{name}>"

    def ask(self, label: str, request: Message, version: int | None = None, wire: Wire | None = None) -> Any:
        version = type(request).MAX_VERSION if version is None else version
        try:
            response = (wire or self.wire).ask(request, version)
        except ConnectionError:
            self.wire = Wire(self.port)
            self.lines.append(f"{label} v{version}: closed")
            return None
        self.note(f"{label} v{version}", response)
        return response

    def note(self, label: str, response: Struct) -> None:
        text = self._shown(response)
        for value, name in self._names.items():
            text = text.replace(value, name)
        text = _MEMBER_ID.sub(r"<\1>", text)
        self.lines.append(f"{label}: {text}")

    def until(self, request: Message, version: int, done: Any) -> Any:
        """Repeats a question, without noting it, until the answer is as wished: Apache Kafka answers some changes
        before all of its parts know of them."""
        deadline = time.monotonic() + _SETTLE_TIMEOUT_S
        while True:
            response = self.wire.ask(request, version)
            if done(response):
                return response
            if time.monotonic() > deadline:
                raise AssertionError(f"never settled: {request} -> {response}")
            time.sleep(POLL_INTERVAL_S)

    def find_coordinator(self, group_id: str) -> None:
        """The first search creates `__consumer_offsets`, after which Apache Kafka needs a moment."""
        search = FindCoordinatorRequest(coordinator_keys=[group_id])
        self.until(search, 4, lambda answer: answer.coordinators[0].error_code == 0)

    def create_topic(self, name: str, partitions: int = 1) -> Uuid:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        made = self.wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        assert made.topics[0].error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS), made
        question = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        found = self.until(question, 12, lambda a: len(a.topics[0].partitions) == partitions).topics[0]
        self.call(f"id of {name}", found.topic_id)
        topic_id: Uuid = found.topic_id
        return topic_id

    def delete_topic(self, name: str) -> None:
        made = self.wire.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=10_000))
        assert made.responses[0].error_code == 0, made

    def _shown(self, value: Any) -> str:
        if isinstance(value, Struct):
            return f"({', '.join(self._shown_fields(value))})"
        if isinstance(value, list):
            return f"[{', '.join(map(self._shown, value))}]"
        if isinstance(value, memoryview):
            return value.hex()
        return str(value) if isinstance(value, Uuid) else repr(value)

    def _shown_fields(self, struct: Struct) -> Iterator[str]:
        for name, field in struct.items():
            if name == "error_code":
                yield ErrorCode(field).name
            elif name in _TEXTS:
                if self._generic_texts is not None and field and field not in self._generic_texts:
                    yield f"{name}={field!r}"
            elif name in _UNORDERED and isinstance(field, list):
                yield f"{name}=[{', '.join(sorted(map(self._shown, field)))}]"
            elif name not in _LEFT_OUT:
                yield f"{name}={self._shown(field)}"
