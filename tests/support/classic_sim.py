"""A simulated world of classic groups: a coordinator that may move, its log, and clients of the classic protocol.

A fake clock, one heap of events, all randomness from the seed. ``World.check`` holds after every event.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any

from support.classic_groups import GROUP, START_MS, subscription

from broker.coordinator.effects import Effects
from broker.coordinator.group.base import Client
from broker.coordinator.group.classic.group import ClassicGroup, ClassicState, subscribed_topics
from broker.coordinator.group.config import GroupConfig
from broker.coordinator.group.core import GroupCoordinator
from broker.coordinator.records import decode_record, encode_record
from controller.image import MetadataImage
from protocol.coordinator.group_metadata import GroupMetadataValue
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

TOPICS = {"a": 3, "b": 2, "c": 1}
Partition = tuple[str, int]
Operation = Callable[[GroupCoordinator, int, "Call"], Effects]


class Call:
    """One request of one member. ``identity`` is who it speaks for: the instance, or else the member."""

    __slots__ = ("deliver", "identity", "name", "offsets")

    def __init__(
        self, name: str, identity: str, deliver: Callable[[Any], None], offsets: dict[Partition, int] | None = None
    ) -> None:
        self.name = name
        self.identity = identity
        self.deliver = deliver
        self.offsets = offsets


class World:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_ms = START_MS
        self.config = GroupConfig(
            classic_initial_rebalance_delay_ms=self.rng.choice((0, 500, 3_000)),
            offsets_retention_check_interval_ms=10**9,
        )
        self.log: list[tuple[bytes, bytes | None]] = []
        self.is_calm = False
        self.failure_rate = self.rng.choice((0.0, 0.0, 0.05))
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.waiting: set[Call] = set()
        self.members: list[Member] = []
        self.committed: dict[Partition, int] = {}
        self.owners: dict[int, dict[Partition, str]] = {}
        self.stored_generation = 0
        self.seen_generation = 0
        self._serial = itertools.count()
        self._ids = itertools.count()
        self.core = self._load()

    # --- time -------------------------------------------------------------------------------------------------------

    def at(self, delay_ms: int, action: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now_ms + delay_ms, next(self._serial), action))

    def run_until(self, end_ms: int) -> None:
        while True:
            deadline_ms = self.core.next_deadline_ms
            event_ms = self.events[0][0] if self.events else None
            due = [time_ms for time_ms in (deadline_ms, event_ms) if time_ms is not None]
            if not due or min(due) > end_ms:
                self.now_ms = end_ms
                return
            self.now_ms = max(self.now_ms, min(due))
            if event_ms is not None and event_ms <= self.now_ms:
                heapq.heappop(self.events)[2]()
            else:
                self.perform(self.core.tick(self.now_ms))
            self.check()

    # --- the coordinator and its log --------------------------------------------------------------------------------

    def _load(self) -> GroupCoordinator:
        core = GroupCoordinator(
            self.config, MetadataImage(), random.Random(self.rng.random()), lambda: f"id{next(self._ids)}"
        )
        for key, value in self.log:
            core.replay(decode_record(key, value))
        self.seen_generation = self.stored_generation
        effects = core.on_loaded(self.now_ms)
        assert not effects.records
        assert not effects.replies
        return core

    def move(self) -> None:
        """Another coordinator takes over; who waits for this one hears that it is no longer responsible."""
        waiting, self.waiting = self.waiting, set()
        for call in sorted(waiting, key=lambda call: call.name):
            self._answer(call, None)
        self.core = self._load()

    def call(self, call: Call, operation: Operation) -> None:
        def arrive() -> None:
            self.waiting.add(call)
            self.perform(operation(self.core, self.now_ms, call))

        self.at(self._latency_ms(), arrive)

    def perform(self, effects: Effects) -> None:
        if effects.records and self.rng.random() < self.failure_rate:
            self.move()  # the append failed: nothing of it may be told to anyone
            return
        for record in effects.records:
            if isinstance(record.value, GroupMetadataValue):
                assert record.value.generation >= self.stored_generation, "a stored generation fell"
                self.stored_generation = record.value.generation
            self.log.append(encode_record(record))
        for token, response in effects.replies:
            assert isinstance(token, Call)
            self.waiting.remove(token)  # KeyError: answered twice
            if isinstance(response, SyncGroupResponse) and response.error_code == ErrorCode.NONE:
                self._on_assigned(token, partitions_of(response.assignment))
            elif isinstance(response, OffsetCommitResponse) and _is_accepted(response):
                assert token.offsets is not None
                self._on_committed(token.offsets)
            self._answer(token, response)

    def _answer(self, call: Call, response: Any) -> None:
        self.at(self._latency_ms(), lambda: call.deliver(response))

    def _latency_ms(self) -> int:
        """Now and then a request is so late that its generation is over when it arrives."""
        if not self.is_calm and self.rng.random() < 0.05:
            return self.rng.randrange(500, 9_000)
        return self.rng.randrange(1, 40)

    # --- invariants -------------------------------------------------------------------------------------------------

    def group(self) -> ClassicGroup | None:
        return self.core.shard.find(GROUP, ClassicGroup)

    def _on_assigned(self, call: Call, partitions: list[Partition]) -> None:
        group = self.group()
        assert group is not None
        owners = self.owners.setdefault(group.generation_id, {})
        for partition in partitions:
            owner = owners.setdefault(partition, call.identity)
            assert owner == call.identity, f"{partition} has two owners in generation {group.generation_id}"

    def _on_committed(self, offsets: dict[Partition, int]) -> None:
        for partition, offset in offsets.items():
            assert offset >= self.committed.get(partition, 0), f"the offset of {partition} went backwards"
            self.committed[partition] = offset

    def check(self) -> None:
        for (topic, index), offset in self.committed.items():
            found = self.core.shard.offsets.get(GROUP, topic, index)
            assert found is not None, f"the offset of {topic}-{index} vanished"
            assert found.offset >= offset, f"the offset of {topic}-{index} fell behind what was acknowledged"
        group = self.group()
        if group is None:
            assert not self.stored_generation
            return
        assert group.generation_id >= self.seen_generation, "the generation fell"
        self.seen_generation = group.generation_id
        if group.state is not ClassicState.STABLE:
            return
        assigned = [p for member in group.members.values() for p in partitions_of(member.assignment)]
        subscribed = {
            (topic, index)
            for member in group.members.values()
            for topic in subscribed_topics(member.metadata(group.protocol_name or "") or b"")
            for index in range(TOPICS[topic])
        }
        assert len(assigned) == len(set(assigned)), "a stable group assigns a partition twice"
        assert set(assigned) == subscribed, "a stable group does not cover its subscription"


def _is_accepted(response: OffsetCommitResponse) -> bool:
    return all(p.error_code == ErrorCode.NONE for topic in response.topics for p in topic.partitions)


def partitions_of(assignment: bytes) -> list[Partition]:
    names = assignment.decode().split()
    return [(name.split("-")[0], int(name.split("-")[1])) for name in names]


class Member:
    """A client of the classic protocol, with one request at a time and what clients do with each answer."""

    def __init__(self, world: World, name: str, instance_id: str | None) -> None:
        rng = world.rng
        self.world = world
        self.name = name
        self.instance_id = instance_id
        self.version = rng.choice((5, 8, 9)) if instance_id else rng.choice((3, 5, 9))
        self.topics = list(TOPICS) if instance_id else rng.sample(sorted(TOPICS), rng.randrange(1, 4))
        self.protocols = ["range", "sticky"] if rng.random() < 0.5 else ["sticky", "range"]
        self.session_timeout_ms = rng.choice((6_000, 8_000))
        self.rebalance_timeout_ms = rng.choice((4_000, 10_000))
        self.member_id = ""
        self.generation_id = -1
        self.positions: dict[Partition, int] = {}
        self.is_alive = True
        self.is_stable = False
        self.resumes_ms = 0
        self.join()

    # --- plumbing ---------------------------------------------------------------------------------------------------

    def send(
        self,
        name: str,
        operation: Operation,
        then: Callable[[Any], None],
        offsets: dict[Partition, int] | None = None,
    ) -> None:
        def deliver(response: Any) -> None:
            if not self.is_alive:
                return
            if self.world.now_ms < self.resumes_ms:
                self.world.at(self.resumes_ms - self.world.now_ms, lambda: deliver(response))
                return
            then(response)

        identity = self.instance_id or self.name
        self.world.call(Call(f"{self.name} {name}", identity, deliver, offsets), operation)

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        def wake() -> None:
            if not self.is_alive:
                return
            if self.world.now_ms < self.resumes_ms:
                self.world.at(self.resumes_ms - self.world.now_ms, wake)
                return
            action()

        self.world.at(delay_ms, wake)

    def client(self, version: int) -> Client:
        return Client(self.name, "/10.0.0.1", version)

    # --- join and sync ----------------------------------------------------------------------------------------------

    def join(self) -> None:
        self.is_stable = False
        self.positions.clear()
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=p, metadata=subscription(*self.topics)) for p in self.protocols],
        )
        client = self.client(self.version)
        self.send("join", lambda core, now, call: core.join_group(now, call, request, client), self.on_joined)

    def rejoin(self, code: int | None) -> None:
        """After an error, with some backoff; None is an answer that never came, or came from nobody responsible."""
        self.is_stable = False
        self.positions.clear()
        if code == ErrorCode.FENCED_INSTANCE_ID:
            # Another one took its place; or this one did so in a rebalance that a takeover undid, as in Apache Kafka.
            self.is_alive = False
            return
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.later(self.world.rng.randrange(10, 200), self.join)

    def on_joined(self, response: JoinGroupResponse | None) -> None:
        if response is None:
            self.rejoin(None)
        elif response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self.join()
        elif response.error_code != ErrorCode.NONE:
            self.rejoin(response.error_code)
        else:
            self.member_id = response.member_id
            self.generation_id = response.generation_id
            self.sync(response)

    def sync(self, joined: JoinGroupResponse) -> None:
        assignments = []
        if joined.leader == self.member_id and not joined.skip_assignment:
            subscriptions = {m.member_id: subscribed_topics(bytes(m.metadata)) for m in joined.members}
            assignments = [
                SyncGroupRequestAssignment(member_id=member_id, assignment=" ".join(names).encode())
                for member_id, names in assign(self.world.rng, subscriptions).items()
            ]
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        client = self.client(5)
        self.send("sync", lambda core, now, call: core.sync_group(now, call, request, client), self.on_synced)

    def on_synced(self, response: SyncGroupResponse | None) -> None:
        if response is None or response.error_code != ErrorCode.NONE:
            self.rejoin(None if response is None else response.error_code)
            return
        self.is_stable = True
        owned = partitions_of(response.assignment)
        request = OffsetFetchRequestGroup(
            group_id=GROUP,
            topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[index]) for topic, index in owned],
        )

        def fetch(core: GroupCoordinator, now_ms: int, call: Call) -> Effects:
            return Effects.reply(call, core.offset_fetch(now_ms, request, require_stable=True))

        def fetched(answer: Any) -> None:
            if answer is None:
                self.rejoin(None)
                return
            found = [topic.partitions[0].committed_offset for topic in answer.topics]
            self.positions = {p: max(offset, 0) for p, offset in zip(owned, found, strict=True)}
            self.idle()

        self.send("fetch", fetch, fetched)

    # --- a stable member --------------------------------------------------------------------------------------------

    def idle(self) -> None:
        self.later(self.world.rng.randrange(1_000, 2_500), self.act)

    def act(self) -> None:
        rng = self.world.rng
        if self.instance_id is None and not self.world.is_calm and rng.random() < 0.03:
            self.topics = rng.sample(sorted(TOPICS), rng.randrange(1, 4))
            self.join()
        elif self.positions and rng.random() < 0.5:
            self.commit(lambda: None)
        else:
            self.heartbeat()

    def heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        client = self.client(4)
        self.send("heartbeat", lambda core, now, call: core.heartbeat(now, call, request, client), self.on_heartbeat)

    def on_heartbeat(self, response: HeartbeatResponse | None) -> None:
        if response is None or response.error_code == ErrorCode.NONE:
            self.idle()
        elif response.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            if self.positions and self.world.rng.random() < 0.5:
                self.commit(self.join)  # what it read so far, before it gives up its partitions
            else:
                self.join()
        else:
            self.rejoin(response.error_code)

    def commit(self, then: Callable[[], None]) -> None:
        for partition in self.positions:
            self.positions[partition] += self.world.rng.randrange(5)
        offsets = dict(self.positions)
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)],
                )
                for (topic, index), offset in offsets.items()
            ],
        )
        client = self.client(9)

        def answered(response: OffsetCommitResponse | None) -> None:
            code = None if response is None else response.topics[0].partitions[0].error_code
            if code == ErrorCode.NONE:
                then()
                if self.is_stable:
                    self.idle()
            else:
                self.rejoin(code)

        self.send("commit", lambda core, now, call: core.offset_commit(now, call, request, client), answered, offsets)

    # --- faults -----------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        self.is_alive = False

    def leave(self) -> None:
        self.is_alive = False
        request = LeaveGroupRequest(group_id=GROUP)
        request.members = [MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)]
        client = self.client(5)
        self.send("leave", lambda core, now, call: core.leave_group(now, call, request, client), lambda response: None)


def assign(rng: random.Random, subscriptions: dict[str, list[str]]) -> dict[str, list[str]]:
    """Every partition of every subscribed topic to some member that subscribed to it."""
    given: dict[str, list[str]] = {member_id: [] for member_id in subscriptions}
    for topic, partitions in TOPICS.items():
        takers = sorted(member_id for member_id, topics in subscriptions.items() if topic in topics)
        for index in range(partitions):
            if takers:
                given[rng.choice(takers)].append(f"{topic}-{index}")
    return given
