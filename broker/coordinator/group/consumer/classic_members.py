"""Members of a consumer group that speak the classic protocol: the coordinator plays their leader.

Their generation is their member epoch. To hear of a new target they must join again, so they are told to by
REBALANCE_IN_PROGRESS; they say what they own with their subscription, and get their assignment with the sync.
"""

from __future__ import annotations

from dataclasses import replace

from broker.coordinator.effects import Effects
from broker.coordinator.group.base import CONSUMER_PROTOCOL_TYPE, Client, ShardState
from broker.coordinator.group.classic.rebalance import join_error
from broker.coordinator.group.consumer.deadlines import Deadlines
from broker.coordinator.group.consumer.group import ConsumerGroup
from broker.coordinator.group.consumer.group_records import Records
from broker.coordinator.group.consumer.leaving import Leaving
from broker.coordinator.group.consumer.member import (
    ClassicProtocols,
    ConsumerMember,
    MemberState,
    without_epochs,
)
from broker.coordinator.group.consumer.migration import (
    Migration,
    decode_subscription,
    encode_assignment,
    subscription_version,
)
from broker.coordinator.group.consumer.regexes import Regexes, RegexStatus
from broker.coordinator.group.consumer.replay import replay
from broker.coordinator.group.consumer.steps import Planned, Steps
from protocol.errors import ApiError, DecodeError, ErrorCode
from protocol.messages.consumer_group_heartbeat import TopicPartitions
from protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_REBALANCE_TIMEOUT_SINCE = 1
_KNOWN_ID_SINCE = 4
_LEAVE_MANY_SINCE = 3


class ClassicMembers:
    __slots__ = ("_deadlines", "_leaving", "_migration", "_regexes", "_shard", "_steps")

    def __init__(
        self,
        shard: ShardState,
        steps: Steps,
        regexes: Regexes,
        migration: Migration,
        leaving: Leaving,
        deadlines: Deadlines,
    ) -> None:
        self._shard = shard
        self._steps = steps
        self._regexes = regexes
        self._migration = migration
        self._leaving = leaving
        self._deadlines = deadlines

    # --- join -------------------------------------------------------------------------------------------------------

    def join(self, now_ms: int, token: object, request: JoinGroupRequest, client: Client) -> Effects:
        try:
            return self._join(now_ms, token, request, client)
        except ApiError as error:
            return Effects.reply(token, join_error(request.member_id, error.code, client.api_version))

    def _join(self, now_ms: int, token: object, request: JoinGroupRequest, client: Client) -> Effects:
        group = self._group_or_raise(request.group_id)
        group_id = group.group_id
        if self._shard.config.consumer_migration_policy.lower() == "disabled":
            raise ApiError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Cannot join the consumer group {group_id} with the classic protocol because the group migration is "
                "disabled.",
            )
        is_unknown = not request.member_id
        member_id = request.member_id or self._shard.new_id()
        self._steps.check_room(group, member_id)
        names = [protocol.name for protocol in request.protocols]
        if not group.supports_classic_protocols(request.protocol_type, names):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported.")
        if is_unknown and request.group_instance_id is None and client.api_version >= _KNOWN_ID_SINCE:
            return Effects.reply(token, join_error(member_id, ErrorCode.MEMBER_ID_REQUIRED, client.api_version))

        records: Records = []
        if request.group_instance_id is None:
            member = group.members.get(member_id) or ConsumerMember(member_id)
        elif is_unknown:
            member = self._steps.static_join(group, member_id, request.group_instance_id, records, is_classic=True)
        else:
            member = self._steps.static_member_or_raise(group, member_id, request.group_instance_id)
        replaced = group.static_member(request.group_instance_id)
        is_downgrade = replaced is not None and self._migration.can_downgrade_replacing(group, replaced)
        subscription = _subscription(request)
        timeout_ms = request.rebalance_timeout_ms
        if client.api_version < _REBALANCE_TIMEOUT_SINCE:
            timeout_ms = request.session_timeout_ms
        updated = _updated(member, request, subscription, timeout_ms, client)

        names_changed = self._steps.has_subscription_changed(group, member, updated, records)
        regex = self._regexes.update(now_ms, group, member, updated, records)
        has_changed = names_changed or regex.status is not RegexStatus.UNCHANGED
        if has_changed or group.is_refresh_due:
            planned = self._steps.refresh_metadata(group, member, updated, records, bump=has_changed)
        else:
            planned = Planned(group.group_epoch)
        owned = self._owned(subscription)
        effects = Effects()
        if is_downgrade:
            is_stale = group.assignment_epoch < planned.group_epoch
            if not is_stale:
                target = (group.assignment_epoch, group.target_of(updated))
                updated = self._steps.reconcile(
                    now_ms, group, updated, target, owned, records, has_subscription_changed=has_changed
                )
            effects.records.extend(records)
            effects.extend(self._migration.downgrade(now_ms, group, (), updated, rebalance=is_stale))
        else:
            target = self._steps.update_target(now_ms, group, planned, member, updated, records)
            updated = self._steps.reconcile(
                now_ms, group, updated, target, owned, records, has_subscription_changed=has_changed
            )
            for record in records:
                replay(self._shard, record)
            effects.records.extend(records)
            self._deadlines.cancel_join(group_id, member_id)
            self._deadlines.schedule_session(now_ms, group_id, member_id, request.session_timeout_ms)
            self._deadlines.schedule_sync(now_ms, group_id, member_id, timeout_ms)
        assert updated.classic is not None
        effects.add_reply(
            token,
            JoinGroupResponse(
                generation_id=updated.member_epoch,
                protocol_type=CONSUMER_PROTOCOL_TYPE,
                protocol_name=updated.classic.protocols[0][0],
                member_id=member_id,
            ),
        )
        if regex.to_resolve and not is_downgrade:
            for record in self._regexes.resolve(now_ms, group, regex.to_resolve):
                replay(self._shard, record)
                effects.records.append(record)
        return effects

    def _owned(self, subscription: ConsumerProtocolSubscription) -> list[TopicPartitions]:
        topics = self._shard.image.topics_by_name
        return [
            TopicPartitions(topic_id=topics[owned.topic].topic_id, partitions=owned.partitions)
            for owned in subscription.owned_partitions
            if owned.topic in topics
        ]

    # --- sync, heartbeat --------------------------------------------------------------------------------------------

    def sync(self, now_ms: int, token: object, request: SyncGroupRequest, client: Client) -> Effects:
        try:
            return Effects.reply(token, self._sync(now_ms, request))
        except ApiError as error:
            return Effects.reply(token, SyncGroupResponse(error_code=error.code))

    def _sync(self, now_ms: int, request: SyncGroupRequest) -> SyncGroupResponse:
        group = self._group_or_raise(request.group_id)
        member, protocols = self._member_or_raise(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        name, metadata = protocols.protocols[0]
        is_other_type = request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE)
        if is_other_type or request.protocol_name not in (None, name):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.assignment_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._deadlines.schedule_join_if_absent(now_ms, group.group_id, member)
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._deadlines.cancel_sync(group.group_id, member.member_id)
        self._deadlines.schedule_session(now_ms, group.group_id, member.member_id, protocols.session_timeout_ms)
        version = subscription_version(metadata)
        return SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=encode_assignment(without_epochs(member.assigned), version, self._shard.image),
        )

    def heartbeat(self, now_ms: int, token: object, request: HeartbeatRequest, client: Client) -> Effects:
        try:
            return Effects.reply(token, HeartbeatResponse(error_code=self._heartbeat(now_ms, request)))
        except ApiError as error:
            return Effects.reply(token, HeartbeatResponse(error_code=error.code))

    def _heartbeat(self, now_ms: int, request: HeartbeatRequest) -> ErrorCode:
        """REBALANCE_IN_PROGRESS while joining again would bring the member further."""
        group = self._group_or_raise(request.group_id)
        member, protocols = self._member_or_raise(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        self._deadlines.schedule_session(now_ms, group.group_id, member.member_id, protocols.session_timeout_ms)
        must_rejoin = (
            member.member_epoch < group.assignment_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.is_waiting_for_release(member))
        )
        if not must_rejoin:
            return ErrorCode.NONE
        self._deadlines.schedule_join_if_absent(now_ms, group.group_id, member)
        return ErrorCode.REBALANCE_IN_PROGRESS

    # --- leave ------------------------------------------------------------------------------------------------------

    def leave(self, now_ms: int, token: object, request: LeaveGroupRequest, client: Client) -> Effects:
        """Members of either protocol may be named: an administrator removes them so."""
        leaving = request.members
        if client.api_version < _LEAVE_MANY_SINCE:
            leaving = [MemberIdentity(member_id=request.member_id)]
        group = self._shard.find(request.group_id, ConsumerGroup)
        gone: dict[str, ConsumerMember] = {}
        response = LeaveGroupResponse()
        for identity in leaving:
            code = ErrorCode.NONE
            try:
                if group is None:
                    raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
                member = self._identified(group, identity)
                gone[member.member_id] = member
            except ApiError as error:
                code = error.code
            response.members.append(
                MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
                )
            )
        if client.api_version < _LEAVE_MANY_SINCE:
            response.error_code = response.members[0].error_code
        effects = Effects() if group is None else self._leaving.fence(now_ms, group, list(gone.values()))
        effects.add_reply(token, response)
        return effects

    def _identified(self, group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
        if identity.group_instance_id is None:
            return group.member_or_raise(identity.member_id)
        member = group.static_member(identity.group_instance_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        if identity.member_id and identity.member_id != member.member_id:
            raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
        return member

    # --- checks -----------------------------------------------------------------------------------------------------

    def _group_or_raise(self, group_id: str) -> ConsumerGroup:
        group = self._shard.find(group_id, ConsumerGroup)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group_id} not found.")
        return group

    def _member_or_raise(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> tuple[ConsumerMember, ClassicProtocols]:
        if instance_id is None:
            member = group.member_or_raise(member_id)
        else:
            member = self._steps.static_member_or_raise(group, member_id, instance_id)
        if member.classic is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
        return member, member.classic


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.member_epoch:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)


def _subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    """The first protocol's; consumers subscribe alike in all of them."""
    try:
        return decode_subscription(bytes(request.protocols[0].metadata))
    except DecodeError:
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR, "Malformed embedded consumer protocol in subscription deserialization."
        ) from None


def _updated(
    member: ConsumerMember,
    request: JoinGroupRequest,
    subscription: ConsumerProtocolSubscription,
    rebalance_timeout_ms: int,
    client: Client,
) -> ConsumerMember:
    protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)
    return replace(
        member,
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
        subscribed_topic_names=frozenset(subscription.topics),
        subscribed_topic_regex="",
        client_id=client.client_id,
        client_host=client.client_host,
        classic=ClassicProtocols(request.session_timeout_ms, protocols),
    )
