"""Bad input over the wire to a real broker: Kafka's error code, or a closed connection where the frame is broken.

After each case the broker serves others, and its log has one line that says who and why, never a traceback.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pytest
from support.broker_process import BrokerProcess
from support.wire import Wire, batch

from protocol.errors import ErrorCode
from protocol.header import encode_request
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import compute_crc

TOPIC = "bad-input"
MAX_MESSAGE_BYTES = 20_000


@pytest.fixture(scope="module")
def wire_broker(broker: BrokerProcess) -> BrokerProcess:
    with Wire(broker.port) as wire:
        configs = [CreatableTopicConfig(name="max.message.bytes", value=str(MAX_MESSAGE_BYTES))]
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, configs=configs)
        compacted = CreatableTopic(
            name="bad-input-compacted",
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name="cleanup.policy", value="compact")],
        )
        response = wire.ask(CreateTopicsRequest(topics=[topic, compacted], timeout_ms=5000))
        assert [one.error_code for one in response.topics] == [0, 0]
    return broker


@pytest.fixture
def wire(wire_broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(wire_broker.port) as wire:
        yield wire


def produce_code(wire: Wire, records: bytes, topic: str = TOPIC, partition: int = 0, acks: int = 1) -> ErrorCode:
    data = PartitionProduceData(index=partition, records=records)
    request = ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    response = wire.ask(request, 12)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


def patched(change: Callable[[bytearray], None]) -> bytearray:
    """A good batch with one field changed and the CRC made right again, so that only that field is wrong."""
    made = batch(b"one", b"two")
    change(made)
    struct.pack_into(">I", made, 17, compute_crc(made))
    return made


def set_int(position: int, code: str, value: int) -> Callable[[bytearray], None]:
    return lambda made: struct.pack_into(code, made, position, value)


BAD_BATCHES = {
    "wrong CRC": (lambda: bytearray(batch(b"x")[:-1] + b"\xff"), ErrorCode.CORRUPT_MESSAGE),
    "unknown magic": (lambda: patched(set_int(16, ">b", 3)), ErrorCode.CORRUPT_MESSAGE),
    "old magic": (lambda: patched(set_int(16, ">b", 1)), ErrorCode.INVALID_RECORD),
    "count and last offset delta disagree": (lambda: patched(set_int(23, ">i", 7)), ErrorCode.INVALID_RECORD),
    "negative count": (lambda: patched(set_int(57, ">i", -1)), ErrorCode.INVALID_RECORD),
    "too large": (lambda: batch(bytes(MAX_MESSAGE_BYTES)), ErrorCode.MESSAGE_TOO_LARGE),
    "a control batch": (lambda: patched(set_int(21, ">h", 0x20)), ErrorCode.INVALID_RECORD),
    "a transactional batch": (
        lambda: batch(b"t", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True),
        ErrorCode.INVALID_TXN_STATE,
    ),
    "unknown codec": (lambda: patched(set_int(21, ">h", 7)), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "two batches": (lambda: batch(b"a") + batch(b"b"), ErrorCode.INVALID_RECORD),
    "cut in the middle": (lambda: batch(b"a" * 100)[:80], ErrorCode.INVALID_RECORD),
    "no bytes": (lambda: bytearray(), ErrorCode.INVALID_RECORD),
    "a length of nonsense": (lambda: patched(set_int(8, ">i", 3)), ErrorCode.CORRUPT_MESSAGE),
}


@pytest.mark.parametrize("case", BAD_BATCHES)
def test_a_bad_batch_gets_its_code_and_the_next_good_one_is_stored(wire: Wire, case: str) -> None:
    make, expected = BAD_BATCHES[case]
    assert produce_code(wire, make()) is expected
    assert produce_code(wire, batch(b"good")) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("topic", "partition", "acks", "expected"),
    [
        ("no-such-topic", 0, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, 99, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, -1, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, 0, 5, ErrorCode.INVALID_REQUIRED_ACKS),
        ("bad-input-compacted", 0, 1, ErrorCode.INVALID_RECORD),
    ],
)
def test_where_a_batch_may_not_go(wire: Wire, topic: str, partition: int, acks: int, expected: ErrorCode) -> None:
    assert produce_code(wire, batch(b"x"), topic, partition, acks) is expected


def test_sequences_of_an_idempotent_producer(wire: Wire) -> None:
    producer_id = wire.ask(InitProducerIdRequest(transactional_id=None), 5).producer_id
    options = {"producer_id": producer_id, "producer_epoch": 0}
    assert produce_code(wire, batch(b"a", b"b", base_sequence=0, **options)) is ErrorCode.NONE
    assert produce_code(wire, batch(b"a", b"b", base_sequence=0, **options)) is ErrorCode.NONE, "a duplicate"
    assert produce_code(wire, batch(b"z", base_sequence=9, **options)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce_code(wire, batch(b"c", base_sequence=2, **options)) is ErrorCode.NONE
    newer = {"producer_id": producer_id, "producer_epoch": 1}
    assert produce_code(wire, batch(b"d", base_sequence=0, **newer)) is ErrorCode.NONE
    assert produce_code(wire, batch(b"e", base_sequence=3, **options)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_failed_produce_without_acks_closes_the_connection(wire: Wire) -> None:
    data = PartitionProduceData(index=0, records=bytes(batch(b"x")[:-1] + b"\xff"))
    request = ProduceRequest(acks=0, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])])
    wire.send_request(request, 9)
    assert wire.is_closed_by_peer()


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        (CreatableTopic(name="a/b", num_partitions=1, replication_factor=1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic(name="", num_partitions=1, replication_factor=1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic(name="x" * 250, num_partitions=1, replication_factor=1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic(name="..", num_partitions=1, replication_factor=1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1), ErrorCode.TOPIC_ALREADY_EXISTS),
        (CreatableTopic(name="none", num_partitions=0, replication_factor=1), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic(name="two", num_partitions=1, replication_factor=2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (CreatableTopic(name="zero", num_partitions=1, replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
    ids=lambda value: value.name if isinstance(value, (CreatableTopic, ErrorCode)) else str(value),
)
def test_topics_that_cannot_be_created(wire: Wire, topic: CreatableTopic, expected: ErrorCode) -> None:
    result = wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000)).topics[0]
    assert ErrorCode(result.error_code) is expected
    assert result.error_message


@pytest.mark.parametrize(
    ("name", "value"), [("no.such.config", "1"), ("retention.ms", "soon"), ("segment.bytes", "-5")]
)
def test_a_wrong_config_is_refused_by_name(wire: Wire, name: str, value: str) -> None:
    config = CreatableTopicConfig(name=name, value=value)
    topic = CreatableTopic(name="configured", num_partitions=1, replication_factor=1, configs=[config])
    created = wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000)).topics[0]
    change = AlterableConfig(name=name, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=[change])
    altered = wire.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses[0]
    for result in (created, altered):
        assert ErrorCode(result.error_code) is ErrorCode.INVALID_CONFIG
        assert name in result.error_message


def test_partitions_cannot_be_taken_away(wire: Wire) -> None:
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=TOPIC, count=1, assignments=None)], timeout_ms=5000
    )
    assert ErrorCode(wire.ask(request).results[0].error_code) is ErrorCode.INVALID_PARTITIONS


def test_fetch_and_list_offsets_of_what_is_not_there(wire: Wire) -> None:
    wanted = [FetchPartition(partition=p, fetch_offset=o, partition_max_bytes=1000) for p, o in ((0, 10**9), (42, 0))]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=wanted)])
    answered = wire.ask(request, 12).responses[0].partitions
    assert [ErrorCode(one.error_code).name for one in answered] == ["OFFSET_OUT_OF_RANGE", "UNKNOWN_TOPIC_OR_PARTITION"]
    listed = wire.ask(
        ListOffsetsRequest(
            replica_id=-1,
            topics=[ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=42, timestamp=-1)])],
        )
    )
    assert ErrorCode(listed.topics[0].partitions[0].error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_unsupported_api_versions_is_answered_at_version_zero(wire: Wire) -> None:
    wire.socket.sendall(encode_request(18, 77, 5, "future", b""))
    response = wire.read_response(18, 0)
    assert isinstance(response, ApiVersionsResponse)
    assert ErrorCode(response.error_code) is ErrorCode.UNSUPPORTED_VERSION
    assert any(api.api_key == 18 for api in response.api_keys)
    assert wire.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1")).error_code == 0


BROKEN_FRAMES = {
    "longer than socket.request.max.bytes": struct.pack(">i", 0x7FFFFFFF),
    "a negative length": struct.pack(">i", -7) + b"xxxx",
    "random bytes": bytes(range(255, 155, -1)),
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "a TLS hello": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "an unknown API key": encode_request(18, 0, 1, "t", b"").replace(b"\x00\x12\x00\x00", b"\x03\xe7\x00\x00", 1),
    "an unsupported version": encode_request(3, 13, 1, "t", b"").replace(b"\x00\x03\x00\x0d", b"\x00\x03\x00\x63", 1),
    "a count beyond the message": encode_request(3, 4, 1, "t", struct.pack(">i", 0x7FFFFFF0)),
    "a varint that never ends": encode_request(3, 12, 1, "t", b"\xff" * 16),
    "a client id beyond the frame": struct.pack(">ihhih", 12, 3, 4, 1, 500) + b"ab",
}


@pytest.mark.parametrize("case", BROKEN_FRAMES)
def test_a_broken_frame_closes_the_connection_with_one_line(wire_broker: BrokerProcess, case: str) -> None:
    with Wire(wire_broker.port) as broken:
        peer = "{}:{}".format(*broken.socket.getsockname())
        broken.socket.sendall(BROKEN_FRAMES[case])
        assert broken.is_closed_by_peer()
    with Wire(wire_broker.port) as other:
        assert other.ask(MetadataRequest(topics=[]), 12).brokers
    log = wire_broker.log_path.read_text()
    assert log.count(peer) == 1
    assert "Traceback" not in log
