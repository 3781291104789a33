"""A classic group: its members, the votes for a protocol, and the states between two generations."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from broker.coordinator.group.base import CONSUMER_PROTOCOL_TYPE, ExpirationBase, Group, GroupType
from broker.coordinator.group.timers import Timers
from broker.coordinator.records import CoordinatorRecord, tombstone
from protocol.coordinator.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from protocol.errors import ApiError, DecodeError, ErrorCode
from protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

GROUP_METADATA_VALUE_VERSION = 3
"""What Apache Kafka 4.3.1 writes: with the time of the last state change and the instance ids."""

Protocols = Sequence[tuple[str, bytes]]


class ClassicState(Enum):
    """The value is what DescribeGroups prints."""

    EMPTY = "Empty"
    """No members. The group is kept for its offsets, or has only just been made."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits for all known members to join again, or for the rebalance timeout."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The generation is made; its leader owes the assignment."""
    STABLE = "Stable"
    DEAD = "Dead"
    """Removed from the shard. Only a deadline or a caller that still holds the object can see it."""


_FROM: dict[ClassicState, frozenset[ClassicState]] = {
    ClassicState.EMPTY: frozenset((ClassicState.PREPARING_REBALANCE,)),
    ClassicState.PREPARING_REBALANCE: frozenset(
        (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE, ClassicState.EMPTY)
    ),
    ClassicState.COMPLETING_REBALANCE: frozenset((ClassicState.PREPARING_REBALANCE,)),
    ClassicState.STABLE: frozenset((ClassicState.COMPLETING_REBALANCE,)),
    ClassicState.DEAD: frozenset(ClassicState),
}
"""For each state, the states it may follow."""


@dataclass(slots=True, eq=False)
class ClassicMember:
    """A member as its last JoinGroup described it.

    ``awaiting_join`` and ``awaiting_sync`` are the tokens of the requests that the member waits on. While it waits for
    a join its session cannot end, because the client sends no heartbeats then. ``is_new`` marks a member that has not
    been told its id yet: if nobody completes its join it is dropped, and the client will come back as another one.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    awaiting_join: object | None = None
    awaiting_sync: object | None = None
    is_new: bool = False
    join_version: int = 0
    """The version of the JoinGroup that waits: it decides how the answer may look."""

    def metadata(self, protocol_name: str) -> bytes | None:
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return None

    def vote(self, candidates: Iterable[str]) -> str:
        """The first of its protocols that all members support."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise AssertionError(f"member {self.member_id} supports none of {candidates!r}")


class ClassicGroup(Group):
    """State of one group. Deadlines and replies are the manager's; nothing here answers anyone.

    Invariants: ``leader_id`` is None exactly while there are no members; ``static_members`` maps each instance id to
    the one member id that may speak for it; a pending member (KIP-394: it was given an id and has yet to come back
    with it) is never also a member; the protocol type is that of the first member and outlives all of them.
    """

    __slots__ = (
        "_supported",
        "current_state_timestamp",
        "generation_id",
        "group_id",
        "has_new_member",
        "leader_id",
        "members",
        "pending_members",
        "pending_sync_members",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "static_members",
        "subscribed_topics",
        "timers",
    )

    group_type = GroupType.CLASSIC

    def __init__(
        self, group_id: str, timers: Timers, state: ClassicState = ClassicState.EMPTY, *, timestamp: int | None = None
    ) -> None:
        self.group_id = group_id
        self.timers = timers
        self.state = state
        self.previous_state = ClassicState.DEAD
        self.current_state_timestamp: int | None = timestamp
        """When the state changed last. Offsets of an Empty group age from here on."""
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: set[str] = set()
        self.pending_sync_members: set[str] = set()
        self.has_new_member = False
        """Somebody joined during the initial delay, which is then extended."""
        self.subscribed_topics: frozenset[str] | None = None
        """None while unknown: then every topic counts as subscribed."""
        self._supported: Counter[str] = Counter()

    # --- states -----------------------------------------------------------------------------------------------------

    def transition_to(self, state: ClassicState, now_ms: int) -> None:
        if self.state not in _FROM[state]:
            raise AssertionError(f"group {self.group_id} cannot go from {self.state.value} to {state.value}")
        self.previous_state = self.state
        self.state = state
        self.current_state_timestamp = now_ms

    @property
    def can_rebalance(self) -> bool:
        return self.state in _FROM[ClassicState.PREPARING_REBALANCE]

    def init_next_generation(self, now_ms: int) -> None:
        self.generation_id += 1
        if self.members:
            self.protocol_name = self.select_protocol()
            self.subscribed_topics = self.compute_subscribed_topics()
            self.transition_to(ClassicState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.subscribed_topics = self.compute_subscribed_topics()
            self.transition_to(ClassicState.EMPTY, now_ms)
        self.pending_sync_members.clear()

    # --- members ----------------------------------------------------------------------------------------------------

    def add(self, member: ClassicMember) -> None:
        if not self.members:
            self.protocol_type = member.protocol_type
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self.pending_members.discard(member.member_id)
        self._supported.update({name for name, _ in member.protocols})

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._forget_protocols(member)
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_members.discard(member_id)
        self.pending_sync_members.discard(member_id)

    def update_protocols(self, member: ClassicMember, protocols: Protocols) -> None:
        self._forget_protocols(member)
        member.protocols = protocols
        self._supported.update({name for name, _ in protocols})

    def replace_static_member(self, instance_id: str, new_member_id: str) -> ClassicMember:
        """The same member under another id; whoever waited under the old one is the caller's to answer."""
        old_member_id = self.static_members[instance_id]
        member = self.members.pop(old_member_id)
        member.member_id = new_member_id
        self.members[new_member_id] = member
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        self.static_members[instance_id] = new_member_id
        return member

    def maybe_elect_new_joined_leader(self) -> bool:
        """Whether a leader is there that joined: the present one, or else any member that did."""
        leader = None if self.leader_id is None else self.members.get(self.leader_id)
        if leader is not None and leader.awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    def has_all_members_joined(self) -> bool:
        return not self.pending_members and all(m.awaiting_join is not None for m in self.members.values())

    def awaiting_join_count(self) -> int:
        return sum(member.awaiting_join is not None for member in self.members.values())

    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member, or UNKNOWN_MEMBER_ID or (another member took its instance id) FENCED_INSTANCE_ID."""
        if instance_id is not None:
            owner = self.static_members.get(instance_id)
            if owner is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            if owner != member_id:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    # --- protocols --------------------------------------------------------------------------------------------------

    def supports_protocols(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether somebody with these protocols could be in one group with all present members."""
        if self.state is ClassicState.EMPTY:
            return bool(protocol_type) and any(True for _ in names)
        everyone = len(self.members)
        return self.protocol_type == protocol_type and any(self._supported[name] == everyone for name in names)

    def select_protocol(self) -> str:
        """Every member votes for its first protocol that all support; ties go to the one that was named first."""
        everyone = len(self.members)
        candidates = {name for name, count in self._supported.items() if count == everyone}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """The topics of all members, as far as the coordinator can read what only consumers are meant to."""
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        try:
            for member in self.members.values():
                topics.update(subscribed_topics(member.metadata(self.protocol_name) or b""))
        except DecodeError:
            return None
        return frozenset(topics)

    def _forget_protocols(self, member: ClassicMember) -> None:
        for name in {name for name, _ in member.protocols}:
            self._supported[name] -= 1
            if not self._supported[name]:
                del self._supported[name]

    # --- records and deadlines --------------------------------------------------------------------------------------

    def metadata_record(self) -> CoordinatorRecord:
        """The group as it is now, with the assignment of each member."""
        members = [
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(self.protocol_name or "") or b"",
                assignment=member.assignment,
            )
            for member in self.members.values()
        ]
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=-1 if self.current_state_timestamp is None else self.current_state_timestamp,
            members=members,
        )
        return CoordinatorRecord(GroupMetadataKey(group=self.group_id), value, GROUP_METADATA_VALUE_VERSION)

    def session_key(self, member_id: str) -> Hashable:
        return ("classic", self.group_id, "session", member_id)

    @property
    def join_key(self) -> Hashable:
        return ("classic", self.group_id, "join")

    @property
    def sync_key(self) -> Hashable:
        return ("classic", self.group_id, "sync")

    # --- Group ------------------------------------------------------------------------------------------------------

    def state_name(self) -> str:
        return self.state.value

    def listed_protocol_type(self) -> str:
        return self.protocol_type or ""

    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, is_transactional: bool, api_version: int
    ) -> None:
        """Who names no member may commit while there is none: that is how simple consumers store offsets."""
        if self.state is ClassicState.DEAD:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation < 0 and self.state is ClassicState.EMPTY:
            return
        if generation >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            if generation != self.generation_id:
                raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        elif not is_transactional and self.state is not ClassicState.EMPTY:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not is_transactional and self.state is ClassicState.COMPLETING_REBALANCE:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if self.state is ClassicState.DEAD:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)

    def check_offset_delete(self) -> None:
        """A group of consumers may lose offsets of topics it does not consume; of others nothing is known."""
        if self.state is ClassicState.DEAD:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        if self.state is not ClassicState.EMPTY and not self.uses_consumer_protocol:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)

    def check_delete(self) -> None:
        if self.state is ClassicState.DEAD:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        if self.state is not ClassicState.EMPTY:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)

    def tombstones(self) -> list[CoordinatorRecord]:
        return [tombstone(GroupMetadataKey(group=self.group_id))]

    def expiration_base(self) -> ExpirationBase | None:
        if self.protocol_type is None:  # only offsets of a simple consumer: each ages on its own
            return ExpirationBase(None)
        if self.state is ClassicState.EMPTY:
            return ExpirationBase(self.current_state_timestamp)
        if self.uses_consumer_protocol and self.subscribed_topics is not None and self.state is ClassicState.STABLE:
            return ExpirationBase(None)
        return None

    def on_removed(self) -> None:
        for member_id in (*self.members, *self.pending_members):
            self.timers.cancel(self.session_key(member_id))
        self.timers.cancel(self.join_key)
        self.timers.cancel(self.sync_key)
        self.previous_state = self.state
        self.state = ClassicState.DEAD


def subscribed_topics(metadata: bytes) -> list[str]:
    """The topics in a consumer's metadata. They come first in every version, so the first version reads them all."""
    if len(metadata) < 2:
        raise DecodeError("a consumer's metadata is shorter than its version")
    (version,) = struct.unpack_from(">h", metadata)
    if version < 0:
        raise DecodeError(f"a consumer's metadata has version {version}")
    return ConsumerProtocolSubscription.decode(metadata, 0, 2).topics
