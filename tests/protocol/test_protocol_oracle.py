"""Every message, every version, compared with what the Java classes of kafka-clients encode."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from message_values import all_messages, as_json, random_message
from py4j.java_gateway import get_field

from protocol.coordinator import GROUP_RECORD_NAMES
from protocol.messages import API_NAMES
from protocol.schema import Message

SAMPLES = 3
SEED = 43

pytestmark = pytest.mark.stock

MESSAGES = sorted(all_messages(), key=lambda declared: declared.__name__)


def java_name(declared: type[Message]) -> str:
    if declared.__module__.startswith("protocol.metadata"):
        return f"org.apache.kafka.common.metadata.{declared.__name__}"
    if declared.__module__.startswith("protocol.coordinator"):
        owner = "transaction" if declared.__name__.startswith("TransactionLog") else "group"
        return f"org.apache.kafka.coordinator.{owner}.generated.{declared.__name__}"
    is_api = declared.__name__.endswith(("Request", "Response", "Header"))
    return f"org.apache.kafka.common.message.{declared.__name__}{'Data' if is_api else ''}"


class Oracle:
    """Kafka's generated classes: JSON in, bytes out."""

    def __init__(self, gateway: Any) -> None:
        self.gateway = gateway
        self.mapper = gateway.jvm.com.fasterxml.jackson.databind.ObjectMapper()
        self.util = gateway.jvm.org.apache.kafka.common.protocol.MessageUtil

    def encode(self, declared: type[Message], value: dict[str, Any], version: int) -> bytes:
        converter = self._class(java_name(declared) + "JsonConverter")
        message = converter.read(self.mapper.readTree(json.dumps(value)), version)
        return bytes(self.util.toByteBufferAccessor(message, version).buffer().array())

    def versions(self, declared: type[Message]) -> tuple[int, int]:
        message = self.gateway.jvm.java.lang.Class.forName(java_name(declared)).getConstructor(None).newInstance(None)
        return message.lowestSupportedVersion(), message.highestSupportedVersion()

    def _class(self, name: str) -> Any:
        node = self.gateway.jvm
        for part in name.split("."):
            node = getattr(node, part)
        return node


@pytest.fixture(scope="module")
def oracle(jvm: Any) -> Oracle:
    return Oracle(jvm)


def api_id(key: Any) -> int:
    """ApiKeys.id is a public field, which py4j reads only when asked by name."""
    return int(get_field(key, "id"))


def test_every_api_and_record_of_kafka_is_declared(jvm: Any) -> None:
    keys = {api_id(key) for key in jvm.jvm.org.apache.kafka.common.protocol.ApiKeys.values()}
    assert set(API_NAMES) == keys - {4, 5, 6, 7}  # ZooKeeper's, which 4.0 took out, have no versions left
    records = {r.id() for r in jvm.jvm.org.apache.kafka.common.metadata.MetadataRecordType.values()}
    ours = {m.API_KEY for m in MESSAGES if m.__module__.startswith("protocol.metadata")}
    assert ours == records
    groups = jvm.jvm.org.apache.kafka.coordinator.group.generated.CoordinatorRecordType.values()
    assert set(GROUP_RECORD_NAMES) == {record.id() for record in groups}


@pytest.mark.parametrize("declared", MESSAGES, ids=lambda declared: declared.__name__)
def test_bytes_equal_javas(declared: type[Message], oracle: Oracle) -> None:
    assert oracle.versions(declared) == (declared.MIN_VERSION, declared.MAX_VERSION)
    rng = random.Random(f"{SEED} {declared.__name__}")
    for version in range(declared.MIN_VERSION, declared.MAX_VERSION + 1):
        for _ in range(SAMPLES):
            value = random_message(declared, version, rng)
            theirs = oracle.encode(declared, as_json(value, version), version)
            assert value.encode(version) == theirs, f"version {version} of {value}"
            back, end = declared.decode_from(theirs, version)
            assert (back, end) == (value, len(theirs))
