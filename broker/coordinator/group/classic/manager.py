"""The classic groups of one shard: requests, the log, and the way to and from the consumer protocol."""

from __future__ import annotations

from broker.coordinator.effects import Effects
from broker.coordinator.group.base import Client, ShardState
from broker.coordinator.group.classic.group import ClassicGroup, ClassicMember, ClassicState
from broker.coordinator.group.classic.join import Joins
from broker.coordinator.group.classic.membership import Membership
from broker.coordinator.group.classic.rebalance import Rebalancer, join_error
from protocol.coordinator.group_metadata import GroupMetadataKey, GroupMetadataValue
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.sync_group import SyncGroupRequest
from protocol.schema import Message


class ClassicGroups:
    __slots__ = ("_joins", "_membership", "_rebalancer", "_shard")

    def __init__(self, shard: ShardState) -> None:
        self._shard = shard
        self._rebalancer = Rebalancer(shard)
        self._joins = Joins(shard, self._rebalancer)
        self._membership = Membership(shard, self._rebalancer)

    # --- requests ---------------------------------------------------------------------------------------------------

    def refuse_join(self, request: JoinGroupRequest, client: Client) -> JoinGroupResponse | None:
        """What is wrong with the request whatever its group is like: no group id, a session timeout out of range."""
        return self._joins.refuse(request, client)

    def join(self, now_ms: int, token: object, request: JoinGroupRequest, client: Client) -> Effects:
        """The group is classic, absent, or an empty one of the other kind."""
        return self._joins.join(now_ms, token, request, client)

    def sync(self, now_ms: int, token: object, request: SyncGroupRequest, client: Client) -> Effects:
        return self._membership.sync(now_ms, token, request, client)

    def heartbeat(self, now_ms: int, token: object, request: HeartbeatRequest) -> Effects:
        return self._membership.heartbeat(now_ms, token, request)

    def leave(self, now_ms: int, token: object, request: LeaveGroupRequest, client: Client) -> Effects:
        return self._membership.leave(now_ms, token, request, client)

    def on_offset_commit(self, now_ms: int, group: ClassicGroup, member_id: str) -> None:
        """A commit is as good as a heartbeat."""
        member = group.members.get(member_id)
        if member is not None and group.state in (ClassicState.STABLE, ClassicState.PREPARING_REBALANCE):
            self._rebalancer.restart_session(now_ms, group, member)

    # --- offsets of groups without members --------------------------------------------------------------------------

    def create_simple(self, group_id: str, now_ms: int | None = None) -> ClassicGroup:
        """A group that exists for its offsets only. It has no record of its own: the offsets' records imply it."""
        group = ClassicGroup(group_id, self._shard.timers, timestamp=now_ms)
        self._shard.put(group)
        return group

    # --- migration to and from the consumer protocol ----------------------------------------------------------------

    def adopt(self, now_ms: int, group: ClassicGroup) -> Effects:
        """Takes over a group that was of the consumer protocol: stores it, and its members' sessions begin anew."""
        self._shard.put(group)
        for member in group.members.values():
            self._rebalancer.restart_session(now_ms, group, member)
        return Effects(records=(group.metadata_record(),))

    def prepare_rebalance(self, now_ms: int, group: ClassicGroup) -> Effects:
        return self._rebalancer.prepare_rebalance(now_ms, group)

    def refuse_waiting(self, group: ClassicGroup, code: ErrorCode) -> Effects:
        """Answers every join and sync that waits in a group which is about to become one of the consumer protocol."""
        effects = Effects()
        for member in group.members.values():
            self._rebalancer.answer_join(member, join_error(member.member_id, code, member.join_version), effects)
            self._rebalancer.refuse_sync(member, code, effects)
        return effects

    # --- the log ----------------------------------------------------------------------------------------------------

    def replay(self, key: GroupMetadataKey, value: Message | None) -> None:
        if value is None:
            if self._shard.find(key.group, ClassicGroup) is not None:
                self._shard.drop(key.group)
            return
        assert isinstance(value, GroupMetadataValue)
        state = ClassicState.STABLE if value.members else ClassicState.EMPTY
        timestamp = None if value.current_state_timestamp == -1 else value.current_state_timestamp
        group = ClassicGroup(key.group, self._shard.timers, state, timestamp=timestamp)
        group.generation_id = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        group.leader_id = value.leader
        for stored in value.members:
            group.add(
                ClassicMember(
                    member_id=stored.member_id,
                    instance_id=stored.group_instance_id,
                    client_id=stored.client_id,
                    client_host=stored.client_host,
                    rebalance_timeout_ms=(
                        stored.session_timeout if stored.rebalance_timeout == -1 else stored.rebalance_timeout
                    ),
                    session_timeout_ms=stored.session_timeout,
                    protocol_type=value.protocol_type,
                    protocols=[(value.protocol or "", bytes(stored.subscription))],
                    assignment=bytes(stored.assignment),
                )
            )
        group.subscribed_topics = group.compute_subscribed_topics()
        self._shard.put(group)

    def on_loaded(self, now_ms: int) -> Effects:
        """Every member has a whole session to find its new coordinator."""
        effects = Effects()
        for group in list(self._shard.groups.values()):
            if not isinstance(group, ClassicGroup):
                continue
            for member in group.members.values():
                self._rebalancer.restart_session(now_ms, group, member)
            if len(group.members) > self._shard.config.classic_max_size:
                effects.extend(self._rebalancer.prepare_rebalance(now_ms, group))
        return effects
