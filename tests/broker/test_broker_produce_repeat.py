"""The shorter way of a produce request that repeats the one before: it must answer as the ordinary way does.

The naive twin is the ordinary way itself: a connection that is new for every request never has anything to repeat.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
from support.broker_process import BrokerProcess
from support.wire import Wire, batch

from broker.api import RequestContext
from broker.handlers.data.produce_repeat import common_prefix
from protocol.errors import ErrorCode
from protocol.header import encode_request, parse_request_header
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.uuids import Uuid

_names = itertools.count()
VERSIONS = (8, 9, 12, 13)


def new_topic(broker: BrokerProcess, partitions: int = 2, **configs: str) -> tuple[str, Uuid]:
    name = f"repeat-{next(_names)}"
    settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=settings)
    with Wire(broker.port) as wire:
        made = wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000)).topics[0]
    assert made.error_code == 0
    return name, made.topic_id


def request_for(topic: tuple[str, Uuid], records: bytes, partition: int = 0, acks: int = 1) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=topic[0], topic_id=topic[1], partition_data=[data])],
    )


def corrupt() -> bytes:
    records = batch(b"corrupt")
    records[-1] ^= 1
    return bytes(records)


def stream() -> list[tuple[bytes, int]]:
    """(records, partition): mostly alike, with everything in between that must not be answered by rote."""
    plain = [(bytes(batch(b"%d" % number, b"second")), 0) for number in range(4)]
    odd = [
        (corrupt(), 0),
        (bytes(batch(b"other partition")), 1),
        (bytes(batch(b"x", is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)), 0),
        (b"", 0),
        (b"\0" * 70, 0),
        (bytes(batch(b"y" * 5000)), 0),
        (bytes(batch(b"no such partition")), 9),
        (bytes(batch(b"p", producer_id=7, producer_epoch=0, base_sequence=0)), 0),
        (bytes(batch(b"p", producer_id=7, producer_epoch=0, base_sequence=0)), 0),  # a duplicate
        (bytes(batch(b"p", producer_id=7, producer_epoch=0, base_sequence=5)), 0),  # out of order
    ]
    return [one for different in odd for one in (*plain, different)] + plain


def shown(response: ProduceResponse) -> list[tuple[object, ...]]:
    return [
        (part.index, part.error_code, part.base_offset, part.log_append_time_ms, part.log_start_offset)
        for topic in response.responses
        for part in topic.partition_responses
    ]


def over_one_connection(broker: BrokerProcess, requests: Sequence[ProduceRequest], version: int) -> list[object]:
    with Wire(broker.port) as wire:
        return [shown(wire.ask(request, version)) for request in requests]


def over_new_connections(broker: BrokerProcess, requests: Sequence[ProduceRequest], version: int) -> list[object]:
    answers: list[object] = []
    for request in requests:
        with Wire(broker.port) as wire:
            answers.append(shown(wire.ask(request, version)))
    return answers


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [1, -1])
def test_answers_as_the_ordinary_way_does(broker: BrokerProcess, version: int, acks: int) -> None:
    answers = []
    for way in (over_one_connection, over_new_connections):
        topic = new_topic(broker, max_message_bytes="3000")
        requests = [request_for(topic, records, partition, acks) for records, partition in stream()]
        answers.append(way(broker, requests, version))
    assert answers[0] == answers[1]
    codes = {part[1] for answer in answers[0] for part in answer}  # type: ignore[attr-defined]
    assert {ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE} <= codes
    assert {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER} <= codes


def test_pipelined_requests_are_answered_in_order(broker: BrokerProcess) -> None:
    topic = new_topic(broker)
    with Wire(broker.port) as wire:
        for number in range(300):
            wire.send_request(request_for(topic, bytes(batch(b"%d" % number))), 13)
        offsets = [shown(wire.read_response(0, 13))[0][2] for _ in range(300)]
    assert offsets == list(range(300))


def produce(wire: Wire, topic: tuple[str, Uuid], version: int) -> object:
    return shown(wire.ask(request_for(topic, bytes(batch(b"again"))), version))[0]


@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_that_is_deleted_and_made_again_is_another(broker: BrokerProcess, version: int) -> None:
    """By name the next request finds the new topic; by id it is told that the old one is gone."""
    topic = new_topic(broker)
    with Wire(broker.port) as wire:
        for _ in range(4):
            assert produce(wire, topic, version)[1] == ErrorCode.NONE  # type: ignore[index]
        with Wire(broker.port) as admin:
            gone = admin.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic[0])], timeout_ms=5000))
            assert gone.responses[0].error_code == 0
            again = CreatableTopic(name=topic[0], num_partitions=1, replication_factor=1)
            assert admin.ask(CreateTopicsRequest(topics=[again], timeout_ms=5000)).topics[0].error_code == 0
        produce(wire, topic, version)  # may still meet the old one's end
        answer = produce(wire, topic, version)
    expected = ErrorCode.NONE if version == 12 else ErrorCode.UNKNOWN_TOPIC_ID
    assert answer[1] == expected  # type: ignore[index]


def test_settings_that_change_in_between_count(broker: BrokerProcess) -> None:
    topic = new_topic(broker)
    with Wire(broker.port) as wire:
        for _ in range(4):
            assert produce(wire, topic, 13)[1] == ErrorCode.NONE  # type: ignore[index]
        smaller = AlterableConfig(name="max.message.bytes", config_operation=0, value="10")
        resource = AlterConfigsResource(resource_type=2, resource_name=topic[0], configs=[smaller])
        with Wire(broker.port) as admin:
            altered = admin.ask(IncrementalAlterConfigsRequest(resources=[resource]))
            assert altered.responses[0].error_code == 0
        assert produce(wire, topic, 13)[1] == ErrorCode.MESSAGE_TOO_LARGE  # type: ignore[index]


def prefix_of(request: ProduceRequest, version: int, edit: Callable[[bytes], bytes] = bytes) -> bytes | None:
    frame = memoryview(edit(encode_request(0, version, 5, "me", request.encode(version))[4:]))
    *_, body = parse_request_header(frame)
    decoded = ProduceRequest.decode(frame, version, body)
    context = RequestContext(
        None,  # type: ignore[arg-type]
        0,
        version,
        5,
        "me",
        peer="",
        listener=None,  # type: ignore[arg-type]
        local_address=("", 0),
        close_connection=print,
    )
    return common_prefix(context, frame, decoded)


def test_what_is_worth_remembering() -> None:
    topic = ("t", Uuid.ZERO)
    records = bytes(batch(b"r"))
    prefix = prefix_of(request_for(topic, records), 12)
    assert prefix is not None
    assert prefix == prefix_of(request_for(topic, bytes(batch(b"other", b"records"))), 12)
    assert prefix != prefix_of(request_for(topic, records, partition=1), 12)
    assert prefix != prefix_of(request_for(topic, records, acks=-1), 12)
    assert prefix_of(request_for(topic, records, acks=0), 12) is None
    assert prefix_of(request_for(topic, records), 8) is None
    two = request_for(topic, records)
    two.topic_data[0].partition_data.append(PartitionProduceData(index=1, records=records))
    assert prefix_of(two, 12) is None


def test_tagged_fields_are_not_taken_for_records() -> None:
    """One unknown tag behind the request: its bytes end where the records are expected to end."""
    tagged = prefix_of(request_for(("t", Uuid.ZERO), bytes(batch(b"r"))), 12, lambda frame: frame[:-1] + b"\1\x63\1\0")
    assert tagged is None
