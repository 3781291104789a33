"""How a classic group moves from one generation to the next: who is waited for, how long, and who hears what.

Stable or Empty -> PreparingRebalance: members join again. All are there, or the rebalance timeout passed ->
CompletingRebalance: the leader brings the assignment -> Stable. With nobody left -> Empty. The first rebalance of an
Empty group waits for `group.initial.rebalance.delay.ms` instead, so that members that start together share it.
"""

from __future__ import annotations

from broker.coordinator.effects import Effects
from broker.coordinator.group.base import NO_GENERATION, UNKNOWN_MEMBER_ID, ShardState
from broker.coordinator.group.classic.group import ClassicGroup, ClassicMember, ClassicState
from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from protocol.messages.sync_group import SyncGroupResponse

NULLABLE_PROTOCOL_NAME = 7
"""From this version of JoinGroup on a response may carry no protocol name; older ones get an empty one."""


class Rebalancer:
    """The one place that changes a group's state and its deadlines."""

    __slots__ = ("_shard", "_timers")

    def __init__(self, shard: ShardState) -> None:
        self._shard = shard
        self._timers = shard.timers

    # --- the join phase ---------------------------------------------------------------------------------------------

    def rebalance_or_complete_join(self, now_ms: int, group: ClassicGroup) -> Effects:
        if group.can_rebalance:
            return self.prepare_rebalance(now_ms, group)
        return self.maybe_complete_join_phase(now_ms, group)

    def prepare_rebalance(self, now_ms: int, group: ClassicGroup) -> Effects:
        """Members learn of it from their next heartbeat; those that wait for an assignment learn of it now."""
        effects = Effects()
        if group.state is ClassicState.COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = b""
                self._answer_sync(now_ms, group, member, ErrorCode.REBALANCE_IN_PROGRESS, effects)
        self._timers.cancel(group.sync_key)
        is_initial = group.state is ClassicState.EMPTY
        group.transition_to(ClassicState.PREPARING_REBALANCE, now_ms)
        if is_initial:
            delay_ms = self._shard.config.classic_initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms() - delay_ms, 0)
            self._schedule_initial(now_ms, group, delay_ms, remaining_ms)
        elif group.has_all_members_joined():
            effects.extend(self.complete_join(now_ms, group))
        else:
            self._schedule_join_timeout(now_ms, group)
        return effects

    def maybe_complete_join_phase(self, now_ms: int, group: ClassicGroup) -> Effects:
        """Does nothing during the initial delay, which is there to wait for more members."""
        if (
            group.state is ClassicState.PREPARING_REBALANCE
            and group.previous_state is not ClassicState.EMPTY
            and group.has_all_members_joined()
        ):
            return self.complete_join(now_ms, group)
        return Effects()

    def complete_join(self, now_ms: int, group: ClassicGroup) -> Effects:
        """Starts the next generation with those that joined.

        Dynamic members that did not are gone. Static ones stay, for they may return within their session, but one that
        joined must lead: if there is none, the group waits for another rebalance timeout.
        """
        self._timers.cancel(group.join_key)
        effects = Effects()
        absent = [m for m in group.members.values() if m.awaiting_join is None and m.instance_id is None]
        for member in absent:
            self.drop_member(group, member, effects)
        if not group.maybe_elect_new_joined_leader() and group.members:
            self._schedule_join_timeout(now_ms, group)
            return effects
        group.init_next_generation(now_ms)
        if group.state is ClassicState.EMPTY:
            effects.records.append(group.metadata_record())
            return effects
        for member in group.members.values():
            self.answer_join(member, joined(group, member), effects)
            self.restart_session(now_ms, group, member)
            member.is_new = False
            group.pending_sync_members.add(member.member_id)
        self._schedule_sync_timeout(now_ms, group)
        return effects

    def _schedule_initial(self, now_ms: int, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        def fire(now_ms: int) -> Effects:
            if not group.has_new_member or remaining_ms == 0:
                return self.complete_join(now_ms, group)
            group.has_new_member = False
            next_delay_ms = min(self._shard.config.classic_initial_rebalance_delay_ms, remaining_ms)
            self._schedule_initial(now_ms, group, next_delay_ms, max(remaining_ms - delay_ms, 0))
            return Effects()

        self._timers.schedule(group.join_key, now_ms + delay_ms, fire)

    def _schedule_join_timeout(self, now_ms: int, group: ClassicGroup) -> None:
        deadline_ms = now_ms + group.rebalance_timeout_ms()
        self._timers.schedule(group.join_key, deadline_ms, lambda now_ms: self.complete_join(now_ms, group))

    # --- the sync phase ---------------------------------------------------------------------------------------------

    def complete_sync(self, now_ms: int, group: ClassicGroup, assignments: dict[str, bytes]) -> Effects:
        """The leader's assignment: stored, then told to everyone who waits for it."""
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        effects = Effects(records=(group.metadata_record(),))
        for member in group.members.values():
            self._answer_sync(now_ms, group, member, ErrorCode.NONE, effects)
        group.transition_to(ClassicState.STABLE, now_ms)
        return effects

    def on_synced(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_sync_members.discard(member_id)
        if not group.pending_sync_members:
            self._timers.cancel(group.sync_key)

    def _schedule_sync_timeout(self, now_ms: int, group: ClassicGroup) -> None:
        generation_id = group.generation_id

        def fire(now_ms: int) -> Effects:
            effects = Effects()
            if group.generation_id != generation_id or not group.pending_sync_members or not group.can_rebalance:
                return effects
            for member_id in sorted(group.pending_sync_members):
                self.drop_member(group, group.members[member_id], effects)
            return effects.extend(self.prepare_rebalance(now_ms, group))

        self._timers.schedule(group.sync_key, now_ms + group.rebalance_timeout_ms(), fire)

    # --- members ----------------------------------------------------------------------------------------------------

    def restart_session(
        self, now_ms: int, group: ClassicGroup, member: ClassicMember, timeout_ms: int | None = None
    ) -> None:
        """A sign of life: the member has another session timeout (or ``timeout_ms``) to give the next one."""
        deadline_ms = now_ms + (member.session_timeout_ms if timeout_ms is None else timeout_ms)
        self._timers.schedule(
            group.session_key(member.member_id), deadline_ms, lambda now_ms: self._on_session_end(now_ms, group, member)
        )

    def add_pending_member(self, now_ms: int, group: ClassicGroup, member_id: str, session_timeout_ms: int) -> None:
        """An id was given out (KIP-394). A rebalance waits for its owner, but only for a session timeout."""

        def fire(now_ms: int) -> Effects:
            if member_id not in group.pending_members:
                return Effects()
            group.remove(member_id)
            if group.state is ClassicState.PREPARING_REBALANCE and group.has_all_members_joined():
                return self.complete_join(now_ms, group)
            return Effects()

        group.pending_members.add(member_id)
        self._timers.schedule(group.session_key(member_id), now_ms + session_timeout_ms, fire)

    def drop_member(self, group: ClassicGroup, member: ClassicMember, effects: Effects) -> None:
        """Removes the member and answers what it waits for; the rebalance that follows is the caller's."""
        self._timers.cancel(group.session_key(member.member_id))
        gone = join_error(UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID, member.join_version)
        self.answer_join(member, gone, effects)
        self.refuse_sync(member, ErrorCode.UNKNOWN_MEMBER_ID, effects)
        group.remove(member.member_id)

    def _on_session_end(self, now_ms: int, group: ClassicGroup, member: ClassicMember) -> Effects:
        """A member that waits for an answer sends no heartbeats, so its session cannot end, unless it is so new that
        nobody knows its id: then the client may long have given up."""
        effects = Effects()
        is_waiting = member.awaiting_join is not None or member.awaiting_sync is not None
        if group.members.get(member.member_id) is not member or (is_waiting and not member.is_new):
            return effects
        self.drop_member(group, member, effects)
        if group.can_rebalance:
            effects.extend(self.prepare_rebalance(now_ms, group))
        elif group.state is ClassicState.PREPARING_REBALANCE and group.has_all_members_joined():
            effects.extend(self.complete_join(now_ms, group))
        return effects

    # --- answers ----------------------------------------------------------------------------------------------------

    def answer_join(self, member: ClassicMember, response: JoinGroupResponse, effects: Effects) -> None:
        if member.awaiting_join is not None:
            effects.add_reply(member.awaiting_join, response)
            member.awaiting_join = None

    def refuse_sync(self, member: ClassicMember, code: ErrorCode, effects: Effects) -> None:
        if member.awaiting_sync is not None:
            effects.add_reply(member.awaiting_sync, SyncGroupResponse(error_code=code))
            member.awaiting_sync = None

    def _answer_sync(
        self, now_ms: int, group: ClassicGroup, member: ClassicMember, code: ErrorCode, effects: Effects
    ) -> None:
        if member.awaiting_sync is None:
            return
        if code is ErrorCode.NONE:
            effects.add_reply(member.awaiting_sync, synced(group, member))
            member.awaiting_sync = None
        else:
            self.refuse_sync(member, code, effects)
        self.restart_session(now_ms, group, member)


def joined(group: ClassicGroup, member: ClassicMember) -> JoinGroupResponse:
    """Only the leader is told who the members are: it makes the assignment."""
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=joined_members(group) if group.leader_id == member.member_id else [],
    )


def joined_members(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata(group.protocol_name or "") or b"",
        )
        for member in group.members.values()
    ]


def join_error(member_id: str, code: ErrorCode, api_version: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        generation_id=NO_GENERATION,
        protocol_name=None if api_version >= NULLABLE_PROTOCOL_NAME else "",
        member_id=member_id,
    )


def synced(group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )
