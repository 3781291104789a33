"""SyncGroup, Heartbeat and LeaveGroup of classic groups."""

from __future__ import annotations

from broker.coordinator.effects import Effects
from broker.coordinator.group.base import UNKNOWN_MEMBER_ID, Client, ShardState
from broker.coordinator.group.classic.group import ClassicGroup, ClassicState
from broker.coordinator.group.classic.rebalance import Rebalancer, synced
from protocol.errors import ApiError, ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

SYNC_NAMES_PROTOCOL_SINCE = 5
LEAVE_MANY_SINCE = 3


class Membership:
    __slots__ = ("_rebalancer", "_shard")

    def __init__(self, shard: ShardState, rebalancer: Rebalancer) -> None:
        self._shard = shard
        self._rebalancer = rebalancer

    # --- sync -------------------------------------------------------------------------------------------------------

    def sync(self, now_ms: int, token: object, request: SyncGroupRequest, client: Client) -> Effects:
        try:
            group = self._group_to_sync(request, client)
            member = group.check_member(request.member_id, request.group_instance_id)
            if request.generation_id != group.generation_id:
                raise ApiError(ErrorCode.ILLEGAL_GENERATION)
            if _differs(request.protocol_type, group.protocol_type) or _differs(
                request.protocol_name, group.protocol_name
            ):
                raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if group.state is ClassicState.PREPARING_REBALANCE:
                raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        except ApiError as error:
            return Effects.reply(token, SyncGroupResponse(error_code=error.code))
        if group.state is ClassicState.STABLE:
            self._rebalancer.on_synced(group, member.member_id)
            return Effects.reply(token, synced(group, member))
        effects = Effects()
        # An earlier sync of the same member is no longer what it waits for; whoever sent it must start over.
        self._rebalancer.refuse_sync(member, ErrorCode.REBALANCE_IN_PROGRESS, effects)
        member.awaiting_sync = token
        self._rebalancer.on_synced(group, member.member_id)
        if group.leader_id == member.member_id:
            assignments = {given.member_id: bytes(given.assignment) for given in request.assignments}
            effects.extend(self._rebalancer.complete_sync(now_ms, group, assignments))
        return effects

    def _group_to_sync(self, request: SyncGroupRequest, client: Client) -> ClassicGroup:
        if client.api_version >= SYNC_NAMES_PROTOCOL_SINCE and (
            request.protocol_type is None or request.protocol_name is None
        ):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        group = self._shard.find(request.group_id, ClassicGroup)
        if group is None or group.is_empty():
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    # --- heartbeat --------------------------------------------------------------------------------------------------

    def heartbeat(self, now_ms: int, token: object, request: HeartbeatRequest) -> Effects:
        return Effects.reply(token, HeartbeatResponse(error_code=self._heartbeat(now_ms, request)))

    def _heartbeat(self, now_ms: int, request: HeartbeatRequest) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self._shard.find(request.group_id, ClassicGroup)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        try:
            member = group.check_member(request.member_id, request.group_instance_id)
        except ApiError as error:
            return error.code
        if request.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        self._rebalancer.restart_session(now_ms, group, member)
        # While the assignment is awaited a member is as alive as in a stable group: it has nothing else to do.
        is_rebalancing = group.state is ClassicState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if is_rebalancing else ErrorCode.NONE

    # --- leave ------------------------------------------------------------------------------------------------------

    def leave(self, now_ms: int, token: object, request: LeaveGroupRequest, client: Client) -> Effects:
        effects = Effects()
        response = LeaveGroupResponse()
        if not request.group_id:
            response.error_code = ErrorCode.INVALID_GROUP_ID
        else:
            response.members = self._leave(now_ms, request, client, effects)
            if client.api_version < LEAVE_MANY_SINCE:  # one member, whose error is the response's
                response.error_code = response.members[0].error_code
        effects.add_reply(token, response)
        return effects

    def _leave(self, now_ms: int, request: LeaveGroupRequest, client: Client, effects: Effects) -> list[MemberResponse]:
        leaving = request.members
        if client.api_version < LEAVE_MANY_SINCE:
            leaving = [MemberIdentity(member_id=request.member_id)]
        group = self._shard.find(request.group_id, ClassicGroup)
        if group is None:
            return [_left(identity, ErrorCode.UNKNOWN_MEMBER_ID) for identity in leaving]
        responses = [_left(identity, self._leave_one(group, identity, effects)) for identity in leaving]
        if any(response.error_code == ErrorCode.NONE for response in responses) and not group.is_empty():
            effects.extend(self._rebalancer.rebalance_or_complete_join(now_ms, group))
        return responses

    def _leave_one(self, group: ClassicGroup, identity: MemberIdentity, effects: Effects) -> ErrorCode:
        """An administrator names only the instance id; the member itself both, or only its member id."""
        member_id = identity.member_id
        if member_id == UNKNOWN_MEMBER_ID:
            owner = None if identity.group_instance_id is None else group.static_members.get(identity.group_instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = owner
        elif member_id in group.pending_members:
            self._shard.timers.cancel(group.session_key(member_id))
            group.remove(member_id)
            return ErrorCode.NONE
        else:
            try:
                group.check_member(member_id, identity.group_instance_id)
            except ApiError as error:
                return error.code
        self._rebalancer.drop_member(group, group.members[member_id], effects)
        return ErrorCode.NONE


def _differs(given: str | None, actual: str | None) -> bool:
    return given is not None and given != actual


def _left(identity: MemberIdentity, code: ErrorCode) -> MemberResponse:
    return MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code)
