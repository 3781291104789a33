"""The life of one group, sent to Apache Kafka and to our coordinator: the same records, in the same order."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import groupby
from typing import Any

import pytest
from support.anchor import AnchorKafka
from support.consumer_groups import Coordinator
from support.group_images import image_of, with_topic
from support.talk import Talk

from broker.coordinator.group.base import Client
from broker.coordinator.group.config import GroupConfig
from broker.coordinator.records import CoordinatorRecord, UnknownRecord, decode_record, encode_record
from controller.image import RESOURCE_GROUP, PartitionImage, TopicImage
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.sync_group import SyncGroupRequest
from protocol.records import iter_batches, iter_records
from protocol.schema import Message
from protocol.uuids import Uuid

pytestmark = pytest.mark.stock

GROUP = "records-of-a-group"
TOPIC = "records-of-a-group"
A, B, C = "AAAAAAAAQAC0000000001A", "AAAAAAAAQAC0000000002A", "AAAAAAAAQAC0000000003A"

Ask = Callable[[Message, int], Any]


def beat(member: str, epoch: int, owned: dict[Uuid, list[int]] | None = None, **more: Any) -> Message:
    request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member, member_epoch=epoch, **more)
    if owned is not None:
        request.topic_partitions = [TopicPartitions(topic_id=topic, partitions=held) for topic, held in owned.items()]
    return request


def join(member: str, **more: Any) -> Message:
    settings: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [TOPIC]}
    return beat(member, 0, {}, **{**settings, **more})


def owned_of(answer: Any) -> dict[Uuid, list[int]]:
    return {topic.topic_id: topic.partitions for topic in answer.assignment.topic_partitions}


def live(ask: Ask) -> None:
    """Native members share, a classic one joins, a static one goes and comes back, the native ones leave."""
    first = ask(join(A), 1)
    second = ask(join(B, server_assignor="uniform", rack_id="r"), 1)
    kept = ask(beat(A, first.member_epoch, owned_of(first)), 1)
    advanced = ask(beat(A, kept.member_epoch, owned_of(kept)), 1)
    ask(beat(B, second.member_epoch, {}), 1)

    subscription = struct.pack(">h", 1) + ConsumerProtocolSubscription(topics=[TOPIC]).encode(1)
    classic = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=45_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
    )
    classic.member_id = ask(classic, 9).member_id
    joined = ask(classic, 9)
    sync = SyncGroupRequest(
        group_id=GROUP,
        member_id=classic.member_id,
        generation_id=joined.generation_id,
        protocol_type="consumer",
        protocol_name="range",
    )
    ask(sync, 5)

    static = ask(join(C, instance_id="i"), 1)
    ask(beat(C, -2, instance_id="i"), 1)
    ask(join(C[:-2] + "9A", instance_id="i"), 1)
    assert static.error_code == 0
    ask(beat(B, -1), 1)
    ask(beat(A, advanced.member_epoch, owned_of(kept)), 1)
    ask(beat(C[:-2] + "9A", -1, instance_id="i"), 1)
    ask(beat(A, -1), 1)
    leaving = [MemberIdentity(member_id=classic.member_id)]
    ask(LeaveGroupRequest(group_id=GROUP, members=leaving), 5)


def test_records_are_kafkas(anchor: AnchorKafka) -> None:
    said: list[tuple[Message, int, Any]] = []
    with Talk(anchor.port) as talk:
        topic_id = talk.create_topic(TOPIC, 3)
        talk.find_coordinator(GROUP)
        setting = AlterableConfig(name="consumer.assignment.interval.ms", value="0")
        resource = AlterConfigsResource(resource_type=RESOURCE_GROUP, resource_name=GROUP, configs=[setting])
        assert talk.wire.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code == 0
        talk.until(join(A), 1, lambda answer: answer.error_code == 0 and answer.assignment.topic_partitions)
        talk.wire.ask(beat(A, -1), 1)
        before = len(stored(anchor))

        def ask(request: Message, version: int) -> Any:
            answer = talk.wire.ask(request, version)
            said.append((type(request).decode(request.encode(version), version), version, answer))
            return answer

        live(ask)
        theirs = stored(anchor)

    ours = replayed(said, topic_id, theirs[:before])
    assert in_runs(ours) == in_runs(theirs[before:])


def replayed(
    said: list[tuple[Message, int, Any]], topic_id: Uuid, history: list[CoordinatorRecord]
) -> list[CoordinatorRecord]:
    """The same requests to a coordinator of ours that starts from the same log."""
    coordinator = Coordinator({}, GroupConfig(consumer_assignment_interval_ms=0))
    topic = TopicImage(TOPIC, topic_id, {number: PartitionImage((1,), (1,), leader=1) for number in range(3)})
    coordinator.core.shard.image, _ = with_topic(image_of({}), topic)
    coordinator.core = coordinator.rebuilt(history)
    names = iter([answer.member_id for request, _, answer in said if isinstance(request, JoinGroupRequest)])
    coordinator.core.shard.new_id = lambda: next(names)
    methods = {
        ConsumerGroupHeartbeatRequest: coordinator.core.consumer_group_heartbeat,
        JoinGroupRequest: coordinator.core.join_group,
        SyncGroupRequest: coordinator.core.sync_group,
        LeaveGroupRequest: coordinator.core.leave_group,
    }
    for request, version, answer in said:
        coordinator.now_ms += 1
        effects = methods[type(request)](coordinator.now_ms, 0, request, Client("client", "/127.0.0.1", version))
        coordinator.perform(effects)
        assert effects.replies[-1].response.error_code == answer.error_code, (request, answer)
    return [decode_record(*encode_record(record)) for record in coordinator.log]


def stored(anchor: AnchorKafka) -> list[CoordinatorRecord]:
    """What Apache Kafka wrote for the group, from its files."""
    found = []
    for path in sorted(anchor.data_dir.glob("__consumer_offsets-*/*.log")):
        data = path.read_bytes()
        for position, header in iter_batches(data):
            for record in iter_records(data[position : position + header.size]):
                assert record.key is not None
                try:
                    decoded = decode_record(record.key, record.value)
                except UnknownRecord:
                    continue
                if getattr(decoded.key, "group_id", getattr(decoded.key, "group", None)) == GROUP:
                    found.append(decoded)
    return found


def in_runs(records: list[CoordinatorRecord]) -> list[str]:
    """Tombstones of all members of a group come in the order of a hash map: they are sorted."""
    runs = groupby(records, key=lambda record: (type(record.key), record.value is None))
    return [text for _, run in runs for text in sorted(map(shown, run))]


def shown(record: CoordinatorRecord) -> str:
    """Without the times and the client's name, which are each side's own, and without the assignment of a member
    whose group was downgraded in the midst of a reconciliation: we store what it has, Apache Kafka what it should.
    """
    for name in ("assignment_timestamp", "current_state_timestamp"):
        if hasattr(record.value, name):
            setattr(record.value, name, 0)
    for holder in (record.value, *getattr(record.value, "members", ())):
        if hasattr(holder, "client_id"):
            holder.client_id = ""
        if hasattr(holder, "assignment"):
            holder.assignment = b""
    return f"{record.key} = {record.value} v{record.value_version}"
