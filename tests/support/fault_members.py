"""Members of groups for a fault test, as the two protocols have them; what they share is in `fault_groups`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from typing import Any

from support.fault_answers import CONSUMER_HEARTBEAT, HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from support.fault_groups import REJOIN, THROWN_OUT, Member

from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from protocol.messages.consumer_protocol_assignment import TopicPartition as AssignedTopic
from protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

SESSION_MS = 4_000
"""Longer than a client waits for a broker that hangs, so that a pause of one node alone throws nobody out."""
REBALANCE_MS = 4_000
BEAT_S = 0.2
_VERSION = 3  # of what classic members tell each other


class ClassicMember(Member):
    """JoinGroup, SyncGroup, Heartbeat. Eager: before it joins again it commits, and gives up all it has."""

    def __init__(self, *rest: Any) -> None:
        super().__init__(*rest)
        self._joined = False
        self._beat_at = 0.0
        self._untaken: set[int] = set()

    @property
    def beat_at(self) -> float:
        return self._beat_at

    def forget(self) -> None:
        super().forget()
        self._joined = False
        self._untaken = set()

    def live(self) -> None:
        if not self._joined:
            self._joined = self._join()
            if not self._joined:
                return self.pause()
        error: ErrorCode | None = ErrorCode.NONE
        if time.monotonic() >= self._beat_at:
            error = self._beat()
        if error is ErrorCode.NONE and self._untaken:
            error = self.take(self._untaken)
            if error is ErrorCode.NONE:
                self._untaken = set()
        if error is ErrorCode.NONE:
            error = self.consume()
        if error in THROWN_OUT:
            self.forget()
        elif error in REJOIN:
            if error is not ErrorCode.ILLEGAL_GENERATION:
                self.commit()
            self._joined = False
        elif error is not ErrorCode.NONE or not self.positions:
            self.pause()
        return None

    def _join(self) -> bool:
        self.give_up(set(self.positions))
        self._untaken = set()
        subscription = ConsumerProtocolSubscription(topics=[self.topic])
        joining = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=_encoded(subscription))],
        )
        answer = self.ask_coordinator(joining, 9, REBALANCE_MS / 1000 + 2)
        if answer is None:
            return False
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return False
        error = self.decide("join group", answer.error_code, JOIN_GROUP)
        if error in THROWN_OUT:
            self.member_id = ""
        if error is not ErrorCode.NONE:
            return False
        self.member_id, self.generation = answer.member_id, answer.generation_id
        members = sorted(one.member_id for one in answer.members) if answer.leader == self.member_id else []
        syncing = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(
                    member_id=member, assignment=self._share(range(at, self.partition_count, len(members)))
                )
                for at, member in enumerate(members)
            ],
        )
        answer = self.ask_coordinator(syncing, 5, REBALANCE_MS / 1000 + 2)
        if answer is None:
            return False
        error = self.decide("sync group", answer.error_code, SYNC_GROUP)
        if error in THROWN_OUT:
            self.member_id = ""
        if error is not ErrorCode.NONE:
            return False
        given = ConsumerProtocolAssignment.decode(bytes(answer.assignment), _VERSION, 2)
        self._untaken = {partition for topic in given.assigned_partitions for partition in topic.partitions}
        self.told(self._untaken)
        self._beat_at = time.monotonic() + BEAT_S
        return True

    def _share(self, partitions: Iterable[int]) -> bytes:
        topic = AssignedTopic(topic=self.topic, partitions=list(partitions))
        return _encoded(ConsumerProtocolAssignment(assigned_partitions=[topic]))

    def _beat(self) -> ErrorCode | None:
        request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
        answer = self.ask_coordinator(request, 4)
        self._beat_at = time.monotonic() + BEAT_S
        return None if answer is None else self.decide("heartbeat", answer.error_code, HEARTBEAT)

    def leave(self) -> None:
        request = LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(member_id=self.member_id)])
        answer = self.ask_coordinator(request, 5)
        if answer is not None:
            for code in {answer.error_code, *(member.error_code for member in answer.members)}:
                self.decide("leave group", code, LEAVE_GROUP)


class ConsumerMember(Member):
    """KIP-848: heartbeats carry what it has, and answers what it should have."""

    def __init__(self, *rest: Any) -> None:
        super().__init__(*rest)
        self._beat_at = 0.0
        self._untaken: set[int] = set()

    @property
    def beat_at(self) -> float:
        return self._beat_at

    def forget(self) -> None:
        super().forget()
        self.member_id, self.generation = str(uuid.UUID(int=self.rng.getrandbits(128), version=4)), 0
        self._untaken = set()
        self._beat_at = 0.0

    def live(self) -> None:
        error: ErrorCode | None = ErrorCode.NONE
        if time.monotonic() >= self._beat_at:
            error = self._beat()
        if error is ErrorCode.NONE and self._untaken:
            error = self.take(self._untaken)
            if error is ErrorCode.NONE:
                self._untaken = set()
        if error is ErrorCode.NONE:
            error = self.consume()
        if error in THROWN_OUT:
            self.give_up(set(self.positions))
            self._untaken, self.generation, self._beat_at = set(), 0, 0.0
        elif error in REJOIN:
            self._beat_at = 0.0  # the next answer has the epoch that counts
        elif error is not ErrorCode.NONE or not self.positions:
            self.pause()

    def _beat(self) -> ErrorCode | None:
        if self.topic_id == self.topic_id.ZERO and self.leader(0) is None:
            return None
        owned = sorted({*self.positions, *self._untaken})
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.generation,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=[self.topic],
            topic_partitions=[TopicPartitions(topic_id=self.topic_id, partitions=owned)] if owned else [],
        )
        answer = self.ask_coordinator(request, 1)
        if answer is None:
            return None
        error = self.decide("consumer group heartbeat", answer.error_code, CONSUMER_HEARTBEAT)
        if error is not ErrorCode.NONE:
            return error
        self._beat_at = time.monotonic() + BEAT_S
        self.generation = answer.member_epoch
        if answer.assignment is not None:
            given = {p for topic in answer.assignment.topic_partitions for p in topic.partitions}
            self._reconcile(given)
        return ErrorCode.NONE

    def _reconcile(self, given: set[int]) -> None:
        owned = {*self.positions, *self._untaken}
        if given == owned:
            return
        revoked = owned - given
        if revoked & set(self.positions):
            self.commit()
        self.give_up(revoked)
        self._untaken = (self._untaken | given) - revoked - set(self.positions)
        self.told(given)
        self._beat_at = 0.0  # what was given up is to be said at once: others wait for it

    def leave(self) -> None:
        request = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=-1)
        answer = self.ask_coordinator(request, 1)
        if answer is not None:
            self.decide("consumer group heartbeat", answer.error_code, CONSUMER_HEARTBEAT)


def _encoded(message: ConsumerProtocolAssignment | ConsumerProtocolSubscription) -> bytes:
    """With the version before it, as clients exchange it."""
    return _VERSION.to_bytes(2, "big") + message.encode(_VERSION)
