"""A group coordinator without its shell, for tests: a clock, a log of encoded records, and the replies by token."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from broker.coordinator.effects import Effects
from broker.coordinator.group.base import Client
from broker.coordinator.group.classic.group import ClassicGroup
from broker.coordinator.group.config import GroupConfig
from broker.coordinator.group.core import GroupCoordinator
from broker.coordinator.records import CoordinatorRecord, decode_record, encode_record
from controller.image import ImageDelta, MetadataImage
from protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from protocol.uuids import Uuid

GROUP = "orders"
START_MS = 1_700_000_000_000


def subscription(*topics: str, version: int = 3) -> bytes:
    """A consumer's metadata as it is carried in JoinGroup."""
    message = ConsumerProtocolSubscription(topics=list(topics))
    return struct.pack(">h", version) + message.encode(version)


class Coordinator:
    """``log`` holds what a shell would have appended; ``reload`` builds the state anew from it, as a takeover does."""

    def __init__(self, config: GroupConfig | None = None, image: MetadataImage | None = None) -> None:
        self.config = config or GroupConfig(classic_initial_rebalance_delay_ms=0)
        self.image = image or MetadataImage()
        self.now_ms = START_MS
        self.log: list[tuple[bytes, bytes | None]] = []
        self.replies: dict[object, Any] = {}
        self._ids = itertools.count(1)
        self._tokens = itertools.count(1)
        self.core = self._make()
        self.core.on_loaded(self.now_ms)

    def _make(self) -> GroupCoordinator:
        return GroupCoordinator(self.config, self.image, random.Random(1), lambda: f"id{next(self._ids)}")

    def reload(self) -> None:
        self.core = self._make()
        for key, value in self.log:
            self.core.replay(decode_record(key, value))
        self.perform(self.core.on_loaded(self.now_ms))

    def perform(self, effects: Effects) -> Effects:
        self.log.extend(encode_record(record) for record in effects.records)
        for token, response in effects.replies:
            assert token not in self.replies, f"{token} is answered twice"
            self.replies[token] = response
        return effects

    def records(self) -> list[CoordinatorRecord]:
        return [decode_record(key, value) for key, value in self.log]

    def token(self) -> object:
        return f"request {next(self._tokens)}"

    def pass_time(self, duration_ms: int) -> None:
        """Fires what is due on the way, each deadline at its own time."""
        end_ms = self.now_ms + duration_ms
        while (deadline := self.core.next_deadline_ms) is not None and deadline <= end_ms:
            self.now_ms = max(self.now_ms, deadline)
            self.perform(self.core.tick(self.now_ms))
        self.now_ms = end_ms

    def on_image(self, image: MetadataImage, delta: ImageDelta) -> None:
        self.image = image
        self.perform(self.core.on_image(self.now_ms, image, delta))

    def group(self, group_id: str = GROUP) -> ClassicGroup:
        group = self.core.shard.groups[group_id]
        assert isinstance(group, ClassicGroup)
        return group

    # --- requests ---------------------------------------------------------------------------------------------------

    def send_join(
        self,
        member_id: str = "",
        *,
        group_id: str = GROUP,
        instance_id: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = (("range", b"meta"),),
        protocol_type: str = "consumer",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 30_000,
        version: int = 9,
        client_id: str = "app",
    ) -> object:
        token = self.token()
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        )
        client = Client(client_id, "/127.0.0.1", version)
        self.perform(self.core.join_group(self.now_ms, token, request, client))
        return token

    def join(self, member_id: str = "", **options: Any) -> JoinGroupResponse:
        """The answer of a join that is answered at once (or at the next tick of the same time)."""
        token = self.send_join(member_id, **options)
        self.pass_time(0)
        response = self.replies[token]
        assert isinstance(response, JoinGroupResponse)
        return response

    def send_sync(
        self,
        member_id: str,
        generation_id: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group_id: str = GROUP,
        instance_id: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
        version: int = 5,
    ) -> object:
        token = self.token()
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=key, assignment=value)
                for key, value in (assignments or {}).items()
            ],
        )
        self.perform(self.core.sync_group(self.now_ms, token, request, Client("app", "/127.0.0.1", version)))
        return token

    def sync(self, member_id: str, generation_id: int, *args: Any, **options: Any) -> SyncGroupResponse:
        response = self.replies[self.send_sync(member_id, generation_id, *args, **options)]
        assert isinstance(response, SyncGroupResponse)
        return response

    def heartbeat(
        self, member_id: str, generation_id: int, instance_id: str | None = None, group_id: str = GROUP
    ) -> int:
        token = self.token()
        request = HeartbeatRequest(
            group_id=group_id, generation_id=generation_id, member_id=member_id, group_instance_id=instance_id
        )
        self.perform(self.core.heartbeat(self.now_ms, token, request, Client("app", "/127.0.0.1", 4)))
        return int(self.replies[token].error_code)

    def leave(self, *members: MemberIdentity | str, group_id: str = GROUP, version: int = 5) -> LeaveGroupResponse:
        token = self.token()
        request = LeaveGroupRequest(group_id=group_id)
        if version < 3:
            (member,) = members
            assert isinstance(member, str)
            request.member_id = member
        else:
            request.members = [MemberIdentity(member_id=m) if isinstance(m, str) else m for m in members]
        self.perform(self.core.leave_group(self.now_ms, token, request, Client("app", "/127.0.0.1", version)))
        response = self.replies[token]
        assert isinstance(response, LeaveGroupResponse)
        return response

    def commit(
        self,
        offsets: dict[tuple[str, int], int],
        member_id: str = "",
        generation_id: int = -1,
        *,
        group_id: str = GROUP,
        instance_id: str | None = None,
        metadata: str | None = "",
        topic_ids: dict[str, Uuid] | None = None,
        retention_ms: int = -1,
        version: int = 9,
    ) -> OffsetCommitResponse:
        token = self.token()
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (name, partition), offset in offsets.items():
            topic_id = (topic_ids or {}).get(name, Uuid.ZERO)
            topic = topics.setdefault(name, OffsetCommitRequestTopic(name=name, topic_id=topic_id))
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=metadata
                )
            )
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
            retention_time_ms=retention_ms,
            topics=list(topics.values()),
        )
        self.perform(self.core.offset_commit(self.now_ms, token, request, Client("app", "/127.0.0.1", version)))
        response = self.replies[token]
        assert isinstance(response, OffsetCommitResponse)
        return response

    def commit_code(self, *args: Any, **options: Any) -> int:
        response = self.commit({("t", 0): 5}, *args, **options)
        return int(response.topics[0].partitions[0].error_code)

    def fetch(
        self,
        topics: dict[str, Sequence[int]] | None,
        *,
        group_id: str = GROUP,
        topic_ids: dict[str, Uuid] | None = None,
    ) -> OffsetFetchResponseGroup:
        wanted = None
        if topics is not None:
            wanted = [
                OffsetFetchRequestTopics(
                    name=name, topic_id=(topic_ids or {}).get(name, Uuid.ZERO), partition_indexes=list(partitions)
                )
                for name, partitions in topics.items()
            ]
        request = OffsetFetchRequestGroup(group_id=group_id, topics=wanted)
        return self.core.offset_fetch(self.now_ms, request, require_stable=True)

    def committed(self, topic: str, partition: int, group_id: str = GROUP) -> int:
        return int(self.fetch({topic: [partition]}, group_id=group_id).topics[0].partitions[0].committed_offset)

    # --- whole stories ----------------------------------------------------------------------------------------------

    def new_member_id(self, **options: Any) -> str:
        """The first round of KIP-394."""
        return self.join(**options).member_id

    def stable_group(
        self, size: int = 1, instance_ids: Iterable[str | None] = (), **options: Any
    ) -> list[JoinGroupResponse]:
        """A stable group whose leader is the first of the returned answers; every assignment is the member's id."""
        instances = list(instance_ids) or [None] * size
        ids = ["" if instance else self.new_member_id(**options) for instance in instances]
        tokens = [
            self.send_join(member_id, instance_id=instance, **options)
            for member_id, instance in zip(ids, instances, strict=True)
        ]
        self.pass_time(self.config.classic_initial_rebalance_delay_ms)
        joined = [self.replies[token] for token in tokens]
        joined.sort(key=lambda response: response.member_id != response.leader)
        leader = joined[0]
        assignments = {member.member_id: member.member_id.encode() for member in leader.members}
        names = {"protocol_type": leader.protocol_type, "protocol_name": leader.protocol_name}
        if "group_id" in options:
            names["group_id"] = options["group_id"]
        for response in joined:
            given = assignments if response is leader else None
            self.sync(response.member_id, response.generation_id, given, **names)
        return joined
