"""Consumers of a simulation: as much of a real client as the coordinator can tell apart."""

from __future__ import annotations

import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from protocol.messages.consumer_protocol_assignment import TopicPartition as AssignedTopic
from protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from protocol.messages.consumer_protocol_subscription import TopicPartition as OwnedTopic
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from protocol.uuids import Uuid

if TYPE_CHECKING:
    from test_sim_consumer_groups import World

GROUP = "g"
Pair = tuple[Uuid, int]


class Consumer(ABC):
    """``owned``: what it was told that it has and has not given up.

    A zombie was thrown out and does not know it yet. With the classic protocol it may be let in again under its old
    id; what it thinks it has is then worth nothing until it is told anew.
    """

    def __init__(self, world: World, number: int, instance_id: str | None) -> None:
        self.world = world
        self.number = number
        self.instance_id = instance_id
        self.member_id = ""
        self.epoch = 0
        self.owned: set[Pair] = set()
        self.has_left = False
        self.is_zombie = False
        self.topics: list[str] = []
        self.regex: str | None = None
        self.choose_topics()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.number}, {self.member_id!r}, epoch {self.epoch})"

    def choose_topics(self) -> None:
        self.topics = sorted(self.world.rng.sample(("t0", "t1", "u0", "u1"), self.world.rng.randint(1, 3)))

    def wants(self, topic: str) -> bool:
        return topic in self.topics or (self.regex is not None and re.fullmatch(self.regex, topic) is not None)

    @property
    def is_consuming(self) -> bool:
        """Between two rebalances: then it commits."""
        return True

    def note(self, what: str) -> None:
        self.world.events.append(f"{self.world.now_ms} {self}: {what}")

    @abstractmethod
    def poll(self) -> None: ...

    @abstractmethod
    def misbehave(self) -> None: ...

    @abstractmethod
    def on_disconnect(self) -> None: ...


class NativeConsumer(Consumer):
    """KIP-848. It may take a few heartbeats to give up what it is told to, but it takes what is new at once."""

    def __init__(self, world: World, number: int, instance_id: str | None) -> None:
        super().__init__(world, number, instance_id)
        self.member_id = world.new_id()
        self.assigned: set[Pair] = set()
        self.must_tell_all = True
        if world.rng.random() < 0.3:
            self.topics, self.regex = [], world.rng.choice(("t.*", "u.", ".*"))
        self.assignor = world.rng.choice((None, None, "uniform", "range"))
        self.loses_next = False

    def poll(self) -> None:
        if self.has_left:
            return
        if self.owned - self.assigned and (self.world.is_calm or self.world.rng.random() < 0.6):
            self.owned &= self.assigned
        is_full = self.epoch == 0 or self.must_tell_all
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=self.epoch, instance_id=self.instance_id
        )
        if is_full:
            request.rebalance_timeout_ms = 30_000
            request.subscribed_topic_names = list(self.topics)
            request.subscribed_topic_regex = self.regex or ""
            request.server_assignor = self.assignor
        if is_full or self.owned == self.assigned:
            request.topic_partitions = self.reported()
        if self.epoch == 0:
            assert not self.owned
        self.must_tell_all = True  # until the answer says otherwise
        loses = self.loses_next
        self.loses_next = False
        self.world.call(
            self.world.coordinator.consumer_group_heartbeat, request, 1, (lambda _: None) if loses else self.on_reply
        )

    def reported(self) -> list[TopicPartitions]:
        topics: dict[Uuid, list[int]] = {}
        for topic_id, partition in sorted(self.owned):
            topics.setdefault(topic_id, []).append(partition)
        return [TopicPartitions(topic_id=topic_id, partitions=held) for topic_id, held in topics.items()]

    def on_reply(self, response: Any) -> None:
        code = ErrorCode(response.error_code)
        if code is ErrorCode.NONE:
            assert response.member_epoch >= self.epoch, "a member's epoch fell"
            self.epoch = response.member_epoch
            self.must_tell_all = False
            if response.assignment is not None:
                self.assigned = {
                    (topic.topic_id, partition)
                    for topic in response.assignment.topic_partitions
                    for partition in topic.partitions
                }
                self.owned |= self.assigned
            return
        self.note(f"{code.name} {response.error_message}")
        if code is ErrorCode.UNRELEASED_INSTANCE_ID:
            return  # comes again until the other one's session is over
        assert code in (
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.GROUP_ID_NOT_FOUND,
            ErrorCode.FENCED_INSTANCE_ID,
        ), code
        self.start_over()

    def start_over(self) -> None:
        self.epoch = 0
        self.is_zombie = False
        self.owned, self.assigned = set(), set()
        self.must_tell_all = True

    def misbehave(self) -> None:
        kind = self.world.rng.random()
        if kind < 0.35:
            self.note("loses the next answer")
            self.loses_next = True
        elif kind < 0.5:
            self.note("subscribes to something else")
            if self.regex is None:
                self.choose_topics()
            else:
                self.regex = self.world.rng.choice(("t.*", "u.", ".*"))
            self.must_tell_all = True
        elif kind < 0.65 and not self.has_left:
            self.note("crashes and comes back as another")
            self.start_over()
            self.member_id = self.world.new_id()
        elif kind < 0.9 and not self.has_left and self.epoch > 0:
            away = self.instance_id is not None and self.world.rng.random() < 0.7
            self.note("leaves" + " for a while" if away else "")
            request = ConsumerGroupHeartbeatRequest(
                group_id=GROUP, member_id=self.member_id, member_epoch=-2 if away else -1, instance_id=self.instance_id
            )
            self.start_over()
            self.world.call(self.world.coordinator.consumer_group_heartbeat, request, 1, lambda _: None)
            self.member_id = self.world.new_id()
            self.has_left = not away and self.world.rng.random() < 0.5
        elif self.has_left:
            self.has_left = False

    def on_disconnect(self) -> None:
        self.must_tell_all = True


class ClassicConsumer(Consumer):
    """JoinGroup and its kin: eager (gives all up before it joins) or cooperative (tells what it has)."""

    def __init__(self, world: World, number: int, instance_id: str | None, *, is_cooperative: bool) -> None:
        super().__init__(world, number, instance_id)
        self.is_cooperative = is_cooperative
        self.phase = "join"
        self.is_waiting = False
        self.protocol = "cooperative-sticky" if is_cooperative else "range"
        self.answer: Any = None
        self.led: dict[str, int] | None = None
        """The topics and partitions it last made an assignment of, if it is the leader."""

    @property
    def is_consuming(self) -> bool:
        return self.phase == "stable"

    def poll(self) -> None:
        if self.has_left or self.is_waiting:
            return
        if self.phase == "stable" and self.led is not None and self.led != self.partitions_of(self.led):
            self.phase = "join"  # a leader looks after its topics
        {"join": self.join, "sync": self.sync, "stable": self.heartbeat}[self.phase]()

    def send(self, method: Any, request: Any, version: int, on_reply: Any) -> None:
        self.is_waiting = True
        world = self.world

        def receive(response: Any) -> None:
            self.is_waiting = False
            on_reply(response)

        world.call(method, request, version, receive)

    def join(self) -> None:
        if not self.is_cooperative:
            self.owned = set()
        by_topic: dict[str, list[int]] = {}
        for topic_id, partition in sorted(self.owned):
            topic = self.world.image.topics_by_id.get(topic_id)
            if topic is not None:
                by_topic.setdefault(topic.name, []).append(partition)
        subscription = ConsumerProtocolSubscription(
            topics=self.topics,
            owned_partitions=[OwnedTopic(topic=name, partitions=held) for name, held in by_topic.items()],
        )
        metadata = struct.pack(">h", 1) + subscription.encode(1)
        request = JoinGroupRequest(
            group_id=GROUP,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=self.protocol, metadata=metadata)],
        )
        self.send(self.world.coordinator.join_group, request, 9, self.on_joined)

    def on_joined(self, response: Any) -> None:
        code = ErrorCode(response.error_code)
        if code is ErrorCode.NONE:
            self.member_id, self.epoch = response.member_id, response.generation_id
            self.answer = response
            self.led = None
            self.phase = "sync"
        elif code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        else:
            self.on_error(code)

    def sync(self) -> None:
        request = SyncGroupRequest(
            group_id=GROUP,
            member_id=self.member_id,
            generation_id=self.epoch,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=self.protocol,
        )
        if self.answer.leader == self.member_id and not self.answer.skip_assignment:
            request.assignments = self.lead()
        elif self.answer.leader == self.member_id:
            # KIP-814 lets a leader that came back off. What happened to its topics meanwhile it cannot know (Java's
            # consumer waits for the next change); this one makes sure and assigns anew.
            self.led = dict.fromkeys(self.topics, -1)
        self.send(self.world.coordinator.sync_group, request, 5, self.on_synced)

    def lead(self) -> list[SyncGroupRequestAssignment]:
        """Round robin; cooperative members get nothing in this round that another one has."""
        wanted: dict[str, list[str]] = {}
        owners: dict[tuple[str, int], str] = {}
        for member in self.answer.members:
            subscription = ConsumerProtocolSubscription.decode(member.metadata, 1, 2)
            for topic in subscription.topics:
                wanted.setdefault(topic, []).append(member.member_id)
            for held in subscription.owned_partitions:
                owners.update({(held.topic, partition): member.member_id for partition in held.partitions})
        self.led = self.partitions_of(wanted)
        assigned: dict[str, dict[str, list[int]]] = {member.member_id: {} for member in self.answer.members}
        for topic, members in sorted(wanted.items()):
            image = self.world.image.topics_by_name.get(topic)
            for partition in range(0 if image is None else len(image.partitions)):
                owner = sorted(members)[partition % len(members)]
                if owners.get((topic, partition), owner) == owner:
                    assigned[owner].setdefault(topic, []).append(partition)
        return [
            SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=struct.pack(">h", 1)
                + ConsumerProtocolAssignment(
                    assigned_partitions=[AssignedTopic(topic=topic, partitions=held) for topic, held in topics.items()]
                ).encode(1),
            )
            for member_id, topics in assigned.items()
        ]

    def partitions_of(self, topics: Iterable[str]) -> dict[str, int]:
        known = self.world.image.topics_by_name
        return {topic: len(known[topic].partitions) if topic in known else 0 for topic in topics}

    def on_synced(self, response: Any) -> None:
        code = ErrorCode(response.error_code)
        if code is not ErrorCode.NONE:
            self.on_error(code)
            return
        assigned: set[Pair] = set()
        if response.assignment:
            given = ConsumerProtocolAssignment.decode(response.assignment, 1, 2)
            for held in given.assigned_partitions:
                topic = self.world.image.topics_by_name.get(held.topic)
                if topic is not None:
                    assigned.update((topic.topic_id, partition) for partition in held.partitions)
        gave_up = self.is_cooperative and bool(self.owned - assigned)
        self.owned = assigned
        self.is_zombie = False
        self.phase = "join" if gave_up else "stable"

    def heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, generation_id=self.epoch, group_instance_id=self.instance_id
        )

        def on_reply(response: Any) -> None:
            if response.error_code != ErrorCode.NONE:
                self.on_error(ErrorCode(response.error_code))

        self.send(self.world.coordinator.heartbeat, request, 4, on_reply)

    def on_error(self, code: ErrorCode) -> None:
        self.note(code.name)
        self.phase = "join"
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            return
        if code is ErrorCode.ILLEGAL_GENERATION:
            self.owned = set()
            return
        assert code in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ), code
        self.member_id = ""
        self.owned = set()

    def misbehave(self) -> None:
        kind = self.world.rng.random()
        if self.is_waiting:
            return
        if kind < 0.3:
            self.choose_topics()
            self.phase = "join"
        elif kind < 0.5:
            self.note("crashes and comes back as another")
            self.member_id, self.owned, self.phase = "", set(), "join"
        elif kind < 0.8 and self.member_id and not self.has_left:
            self.note("leaves")
            identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
            request = LeaveGroupRequest(group_id=GROUP, members=[identity])
            self.member_id, self.owned, self.phase = "", set(), "join"
            self.has_left = self.world.rng.random() < 0.5
            self.send(self.world.coordinator.leave_group, request, 5, lambda _: None)
        elif self.has_left:
            self.has_left = False

    def on_disconnect(self) -> None:
        if self.is_waiting:
            self.is_waiting = False
            self.phase = "join"
