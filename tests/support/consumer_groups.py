"""A coordinator for unit tests of consumer groups: requests in, answers out, and every record it wrote."""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from typing import Any

from support.group_images import image_of, topic_id_of

from broker.coordinator.effects import Effects
from broker.coordinator.group.base import Client
from broker.coordinator.group.config import GroupConfig
from broker.coordinator.group.consumer.group import ConsumerGroup
from broker.coordinator.group.core import GroupCoordinator
from broker.coordinator.records import CoordinatorRecord, decode_record, encode_record
from controller.image import ImageDelta, MetadataImage
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from protocol.messages.consumer_protocol_subscription import TopicPartition as OwnedTopic
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.sync_group import SyncGroupRequest

GROUP = "g"
Owned = Mapping[str, list[int]]


class Coordinator:
    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        config: GroupConfig | None = None,
        group_configs: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.now_ms = 1_000_000
        self.ids = 0
        config = GroupConfig(consumer_assignment_interval_ms=0) if config is None else config
        image = image_of({"t": 3} if topics is None else topics, group_configs=group_configs)
        self.core = GroupCoordinator(config, image, random.Random(1), self.new_id)
        self.log: list[CoordinatorRecord] = []
        self.replies: dict[object, Any] = {}
        self.tokens = 0

    def new_id(self) -> str:
        self.ids += 1
        return f"id{self.ids}"

    @property
    def group(self) -> ConsumerGroup:
        group = self.core.shard.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def perform(self, effects: Effects) -> None:
        self.log.extend(effects.records)
        self.replies.update(dict(effects.replies))

    def call(self, method: Any, request: Any, version: int) -> Any:
        self.tokens += 1
        token = self.tokens
        self.perform(method(self.now_ms, token, request, Client("client", "/127.0.0.1", version)))
        self.pass_time(0)
        return self.replies.get(token)

    def written(self) -> list[str]:
        """The names of the records since the last look; a tombstone with a minus."""
        names = [
            ("-" if record.value is None else "") + type(record.key).__name__.removesuffix("Key") for record in self.log
        ]
        self.log.clear()
        return [name.replace("ConsumerGroup", "") for name in names]

    def pass_time(self, by_ms: int) -> None:
        """Step by step, so that each deadline is met when it is due."""
        end_ms = self.now_ms + by_ms
        while (deadline := self.core.next_deadline_ms) is not None and deadline <= end_ms:
            self.now_ms = max(self.now_ms, deadline)
            self.perform(self.core.tick(self.now_ms))
        self.now_ms = end_ms

    def change(self, changed: tuple[MetadataImage, ImageDelta]) -> None:
        self.perform(self.core.on_image(self.now_ms, *changed))

    def rebuilt(self, log: list[CoordinatorRecord]) -> GroupCoordinator:
        made = GroupCoordinator(self.core.shard.config, self.core.shard.image, random.Random(1), self.new_id)
        for record in log:
            made.replay(decode_record(*encode_record(record)))
        made.on_loaded(self.now_ms)
        return made

    # --- members of the consumer protocol ---------------------------------------------------------------------------

    def join(self, member_id: str = "a", **changes: Any) -> Any:
        settings: dict[str, Any] = {
            "rebalance_timeout_ms": 30_000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
        }
        return self.heartbeat(member_id, 0, **{**settings, **changes})

    def heartbeat(
        self, member_id: str, epoch: int, owned: Owned | None = None, *, version: int = 1, **settings: Any
    ) -> Any:
        request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member_id, member_epoch=epoch)
        if owned is not None:
            request.topic_partitions = [
                TopicPartitions(topic_id=topic_id_of(topic), partitions=held) for topic, held in owned.items()
            ]
        for name, value in settings.items():
            setattr(request, name, value)
        return self.call(self.core.consumer_group_heartbeat, request, version)

    def settled(self, *member_ids: str) -> dict[str, Any]:
        """Members join one after the other and beat until each has its target; their last answers."""
        answers = {member_id: self.join(member_id) for member_id in member_ids}
        for _ in range(4):
            for member_id in member_ids:
                member = self.group.members[member_id]
                owned = {self.topic_name(topic): sorted(held) for topic, held in member.assigned.items()}
                answers[member_id] = self.heartbeat(member_id, member.member_epoch, owned)
        assert self.group.state_name() == "Stable"
        return answers

    def topic_name(self, topic_id: Any) -> str:
        return self.core.shard.image.topics_by_id[topic_id].name

    # --- members of the classic protocol ----------------------------------------------------------------------------

    def classic_join(
        self,
        member_id: str = "",
        topics: list[str] | None = None,
        owned: Owned | None = None,
        *,
        instance_id: str | None = None,
        version: int = 9,
        protocol: str = "range",
    ) -> Any:
        subscription = ConsumerProtocolSubscription(
            topics=["t"] if topics is None else topics,
            owned_partitions=[OwnedTopic(topic=topic, partitions=held) for topic, held in (owned or {}).items()],
        )
        request = JoinGroupRequest(
            group_id=GROUP,
            member_id=member_id,
            group_instance_id=instance_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=protocol, metadata=struct.pack(">h", 1) + subscription.encode(1))],
        )
        return self.call(self.core.join_group, request, version)

    def classic_member(self, **settings: Any) -> Any:
        """Joins in the two rounds that it takes."""
        first = self.classic_join(**settings)
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return self.classic_join(first.member_id, **settings)

    def classic_sync(self, member_id: str, generation: int, **settings: Any) -> Any:
        named = {"protocol_type": "consumer", "protocol_name": "range", **settings}
        request = SyncGroupRequest(group_id=GROUP, member_id=member_id, generation_id=generation, **named)
        return self.call(self.core.sync_group, request, 5)

    def classic_heartbeat(self, member_id: str, generation: int) -> ErrorCode:
        request = HeartbeatRequest(group_id=GROUP, member_id=member_id, generation_id=generation)
        return ErrorCode(self.call(self.core.heartbeat, request, 4).error_code)

    def classic_leave(self, *identities: tuple[str, str | None]) -> list[ErrorCode]:
        members = [MemberIdentity(member_id=member, group_instance_id=instance) for member, instance in identities]
        response = self.call(self.core.leave_group, LeaveGroupRequest(group_id=GROUP, members=members), 5)
        return [ErrorCode(member.error_code) for member in response.members]


def assigned(response: Any) -> dict[Any, list[int]] | None:
    if response.assignment is None:
        return None
    return {topic.topic_id: topic.partitions for topic in response.assignment.topic_partitions}
