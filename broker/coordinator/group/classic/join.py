"""JoinGroup: new members, members that come back, and static members that take over from themselves."""

from __future__ import annotations

from broker.coordinator.effects import Effects
from broker.coordinator.group.base import UNKNOWN_MEMBER_ID, Client, ShardState
from broker.coordinator.group.classic.group import ClassicGroup, ClassicMember, ClassicState, Protocols
from broker.coordinator.group.classic.rebalance import Rebalancer, join_error, joined
from protocol.errors import ApiError, ErrorCode
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

REBALANCE_TIMEOUT_SINCE = 1
"""Before it, members had the session timeout to join again."""
MEMBER_ID_REQUIRED_SINCE = 4
"""KIP-394: a new member is sent away with an id, so that lost responses leave no ghosts in the group."""
SKIP_ASSIGNMENT_SINCE = 9
"""KIP-814: a static leader that returns to a stable group can be told that no assignment is asked of it."""


class Joins:
    __slots__ = ("_rebalancer", "_shard")

    def __init__(self, shard: ShardState, rebalancer: Rebalancer) -> None:
        self._shard = shard
        self._rebalancer = rebalancer

    def refuse(self, request: JoinGroupRequest, client: Client) -> JoinGroupResponse | None:
        """What is wrong with the request whatever the group is like."""
        config = self._shard.config
        code = ErrorCode.NONE
        if not request.group_id:
            code = ErrorCode.INVALID_GROUP_ID
        elif not (
            config.classic_min_session_timeout_ms <= request.session_timeout_ms <= config.classic_max_session_timeout_ms
        ):
            code = ErrorCode.INVALID_SESSION_TIMEOUT
        return None if code is ErrorCode.NONE else join_error(request.member_id, code, client.api_version)

    def join(self, now_ms: int, token: object, request: JoinGroupRequest, client: Client) -> Effects:
        """Creates the group for a member without an id; an empty group of the other kind gives way to a classic one."""
        refused = self.refuse(request, client)
        if refused is not None:
            return Effects.reply(token, refused)
        is_new_member = request.member_id == UNKNOWN_MEMBER_ID
        effects = Effects()
        group = self._shard.find(request.group_id, ClassicGroup)
        if group is None:
            if not is_new_member:
                return Effects.reply(
                    token, join_error(request.member_id, ErrorCode.UNKNOWN_MEMBER_ID, client.api_version)
                )
            previous = self._shard.groups.get(request.group_id)
            if previous is not None:
                effects.records.extend(previous.tombstones())
            group = ClassicGroup(request.group_id, self._shard.timers, timestamp=now_ms)
            self._shard.put(group)
            effects.records.append(group.metadata_record())  # it exists from its first join on
        if not self._has_room_for(group, request.member_id):
            self._forget(group, request.member_id)
            effects.add_reply(
                token, join_error(UNKNOWN_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED, client.api_version)
            )
            return effects
        if not group.supports_protocols(request.protocol_type, [protocol.name for protocol in request.protocols]):
            effects.add_reply(
                token, join_error(request.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, client.api_version)
            )
            return effects
        if is_new_member:
            return effects.extend(self._join_new(now_ms, token, group, request, client))
        return effects.extend(self._join_existing(now_ms, token, group, request, client))

    def _has_room_for(self, group: ClassicGroup, member_id: str) -> bool:
        """`group.max.size` counts, in a rebalance, those that joined so far: the first to come are the ones to stay."""
        max_size = self._shard.config.classic_max_size
        member = group.members.get(member_id)
        if group.state is ClassicState.EMPTY or len(group.members) < max_size:
            return True
        if group.state is ClassicState.PREPARING_REBALANCE:
            return (member is not None and member.awaiting_join is not None) or group.awaiting_join_count() < max_size
        return member is not None

    def _forget(self, group: ClassicGroup, member_id: str) -> None:
        self._shard.timers.cancel(group.session_key(member_id))
        group.remove(member_id)

    # --- new members ------------------------------------------------------------------------------------------------

    def _join_new(
        self, now_ms: int, token: object, group: ClassicGroup, request: JoinGroupRequest, client: Client
    ) -> Effects:
        instance_id = request.group_instance_id
        prefix = client.client_id if instance_id is None else instance_id
        member_id = f"{prefix}-{self._shard.new_id()}"
        if instance_id is not None:
            if instance_id in group.static_members:
                return self._replace_static(now_ms, token, group, request, client, member_id)
            return self._add(now_ms, token, group, request, client, member_id)
        if client.api_version >= MEMBER_ID_REQUIRED_SINCE:
            self._rebalancer.add_pending_member(now_ms, group, member_id, request.session_timeout_ms)
            return Effects.reply(token, join_error(member_id, ErrorCode.MEMBER_ID_REQUIRED, client.api_version))
        return self._add(now_ms, token, group, request, client, member_id)

    def _add(
        self,
        now_ms: int,
        token: object,
        group: ClassicGroup,
        request: JoinGroupRequest,
        client: Client,
        member_id: str,
    ) -> Effects:
        member = ClassicMember(
            member_id=member_id,
            instance_id=request.group_instance_id,
            client_id=client.client_id,
            client_host=client.client_host,
            rebalance_timeout_ms=_rebalance_timeout_ms(request, client),
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=_protocols(request),
            awaiting_join=token,
            is_new=True,
            join_version=client.api_version,
        )
        if group.state is ClassicState.PREPARING_REBALANCE and group.previous_state is ClassicState.EMPTY:
            group.has_new_member = True
        group.add(member)
        timeout_ms = self._shard.config.classic_new_member_join_timeout_ms
        self._rebalancer.restart_session(now_ms, group, member, timeout_ms)
        return self._rebalancer.rebalance_or_complete_join(now_ms, group)

    # --- members that come back -------------------------------------------------------------------------------------

    def _join_existing(
        self, now_ms: int, token: object, group: ClassicGroup, request: JoinGroupRequest, client: Client
    ) -> Effects:
        member_id = request.member_id
        if member_id in group.pending_members:
            if request.group_instance_id is not None:  # ids are only handed out to members without an instance id
                return Effects.reply(token, join_error(member_id, ErrorCode.UNKNOWN_SERVER_ERROR, client.api_version))
            return self._add(now_ms, token, group, request, client, member_id)
        try:
            member = group.check_member(member_id, request.group_instance_id)
        except ApiError as error:
            return Effects.reply(token, join_error(member_id, error.code, client.api_version))
        is_unchanged = list(member.protocols) == list(_protocols(request))
        if group.state is ClassicState.COMPLETING_REBALANCE and is_unchanged:
            # It did not get the answer to its join: it hears it again.
            return Effects.reply(token, joined(group, member))
        if group.state is ClassicState.STABLE and is_unchanged and group.leader_id != member_id:
            # A follower with nothing new; a leader that joins again asks for a rebalance.
            return Effects.reply(token, joined(group, member))
        effects = Effects()
        self._update(token, group, member, request, client, effects)
        return effects.extend(self._rebalancer.rebalance_or_complete_join(now_ms, group))

    def _update(
        self,
        token: object,
        group: ClassicGroup,
        member: ClassicMember,
        request: JoinGroupRequest,
        client: Client,
        effects: Effects,
    ) -> None:
        group.update_protocols(member, _protocols(request))
        member.rebalance_timeout_ms = _rebalance_timeout_ms(request, client)
        member.session_timeout_ms = request.session_timeout_ms
        # An earlier join of the same member is no longer what it waits for; whoever sent it must start over.
        superseded = join_error(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS, member.join_version)
        self._rebalancer.answer_join(member, superseded, effects)
        member.awaiting_join = token
        member.join_version = client.api_version

    # --- static members (KIP-345) -----------------------------------------------------------------------------------

    def _replace_static(
        self,
        now_ms: int,
        token: object,
        group: ClassicGroup,
        request: JoinGroupRequest,
        client: Client,
        member_id: str,
    ) -> Effects:
        """The client was started anew: it continues its former self, and whoever still uses the old id is fenced.

        In a stable group nobody else need notice, as long as the same protocol would be chosen: the assignment stands.
        """
        instance_id = request.group_instance_id
        assert instance_id is not None
        effects = Effects()
        old_member_id = group.static_members[instance_id]
        old_leader_id = group.leader_id
        self._shard.timers.cancel(group.session_key(old_member_id))
        group.pending_sync_members.discard(old_member_id)
        member = group.replace_static_member(instance_id, member_id)
        fenced = join_error(old_member_id, ErrorCode.FENCED_INSTANCE_ID, member.join_version)
        self._rebalancer.answer_join(member, fenced, effects)
        self._rebalancer.refuse_sync(member, ErrorCode.FENCED_INSTANCE_ID, effects)
        self._update(token, group, member, request, client, effects)
        member.is_new = False
        self._rebalancer.restart_session(now_ms, group, member)
        if group.state is not ClassicState.STABLE or group.select_protocol() != group.protocol_name:
            return effects.extend(self._rebalancer.rebalance_or_complete_join(now_ms, group))
        effects.records.append(group.metadata_record())
        self._rebalancer.answer_join(member, _rejoined(group, member, old_leader_id), effects)
        return effects


def _rejoined(group: ClassicGroup, member: ClassicMember, old_leader_id: str | None) -> JoinGroupResponse:
    """A leader is not to compute an assignment: told so since v9, and before by naming its old id as the leader."""
    response = joined(group, member)
    if member.join_version >= SKIP_ASSIGNMENT_SINCE:
        response.skip_assignment = group.leader_id == member.member_id
    else:
        response.leader = old_leader_id or ""
        response.members = []
    return response


def _protocols(request: JoinGroupRequest) -> Protocols:
    return [(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols]


def _rebalance_timeout_ms(request: JoinGroupRequest, client: Client) -> int:
    if client.api_version < REBALANCE_TIMEOUT_SINCE:
        return request.session_timeout_ms
    return request.rebalance_timeout_ms
