"""ConsumerGroupHeartbeat: a member of the consumer protocol joins, stays, or leaves."""

from __future__ import annotations

from dataclasses import replace

from broker.coordinator.effects import Effects
from broker.coordinator.group.base import Client, ShardState
from broker.coordinator.group.classic.group import ClassicGroup
from broker.coordinator.group.classic.manager import ClassicGroups
from broker.coordinator.group.consumer import group_records
from broker.coordinator.group.consumer.deadlines import Deadlines
from broker.coordinator.group.consumer.group import ConsumerGroup
from broker.coordinator.group.consumer.group_records import Records
from broker.coordinator.group.consumer.leaving import Leaving
from broker.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NOTHING,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
)
from broker.coordinator.group.consumer.migration import Migration
from broker.coordinator.group.consumer.regexes import Regexes, RegexStatus
from broker.coordinator.group.consumer.replay import replay
from broker.coordinator.group.consumer.steps import Planned, Steps, check_epoch
from protocol.errors import ApiError, ErrorCode
from protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

_NO_TIMEOUT = -1
_CLIENT_MADE_IDS_SINCE = 1


class Heartbeats:
    __slots__ = ("_classic", "_deadlines", "_leaving", "_migration", "_regexes", "_shard", "_steps")

    def __init__(
        self,
        shard: ShardState,
        classic: ClassicGroups,
        steps: Steps,
        regexes: Regexes,
        migration: Migration,
        leaving: Leaving,
        deadlines: Deadlines,
    ) -> None:
        self._shard = shard
        self._classic = classic
        self._steps = steps
        self._regexes = regexes
        self._migration = migration
        self._leaving = leaving
        self._deadlines = deadlines

    def heartbeat(self, now_ms: int, token: object, request: ConsumerGroupHeartbeatRequest, client: Client) -> Effects:
        try:
            self._check(request, client)
            if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
                return self._leave(now_ms, token, request)
            return self._stay(now_ms, token, request, client)
        except ApiError as error:
            return Effects.reply(
                token, ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
            )

    # --- validation -------------------------------------------------------------------------------------------------

    def _check(self, request: ConsumerGroupHeartbeatRequest, client: Client) -> None:
        epoch = request.member_epoch
        needs_id = client.api_version >= _CLIENT_MADE_IDS_SINCE or epoch > 0 or epoch == LEAVE_EPOCH
        if needs_id and not request.member_id:
            raise _invalid("MemberId can't be empty.")
        for name, text in (
            ("GroupId", request.group_id),
            ("InstanceId", request.instance_id),
            ("RackId", request.rack_id),
        ):
            if text == "":
                raise _invalid(f"{name} can't be empty.")
        if epoch == JOIN_EPOCH:
            if request.rebalance_timeout_ms == _NO_TIMEOUT:
                raise _invalid("RebalanceTimeoutMs must be provided in first request.")
            if request.topic_partitions is None or request.topic_partitions:
                raise _invalid("TopicPartitions must be empty when (re-)joining.")
            if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
                raise _invalid(
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
                )
        elif epoch == STATIC_LEAVE_EPOCH:
            if request.instance_id is None:
                raise _invalid("InstanceId can't be null.")
        elif epoch < STATIC_LEAVE_EPOCH:
            raise _invalid("MemberEpoch is invalid.")
        supported = self._shard.config.consumer_assignors
        if request.server_assignor is not None and request.server_assignor not in supported:
            raise ApiError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
                f"{', '.join(supported)}.",
            )

    # --- joining and staying ----------------------------------------------------------------------------------------

    def _stay(self, now_ms: int, token: object, request: ConsumerGroupHeartbeatRequest, client: Client) -> Effects:
        records: Records = []
        is_joining = request.member_epoch == JOIN_EPOCH
        before = self._shard.groups.get(request.group_id)
        group = self._group(request.group_id, records, create=is_joining)
        self._steps.check_room(group, request.member_id)
        member_id = request.member_id or self._shard.new_id()
        member = self._member(group, member_id, request, records)
        updated = _updated(member, request, client)
        names_changed = self._steps.has_subscription_changed(group, member, updated, records)
        regex = self._regexes.update(now_ms, group, member, updated, records)
        # A cooperative group may be met between its two rebalances, with partitions that nobody has: assign anew.
        is_upgrade = group is not before and bool(group.members)
        bump = names_changed or regex.status is RegexStatus.UPDATED_AND_RESOLVED or is_upgrade
        if bump or group.is_refresh_due:
            planned = self._steps.refresh_metadata(group, member, updated, records, bump=bump)
        else:
            planned = Planned(group.group_epoch)
        target = self._steps.update_target(now_ms, group, planned, member, updated, records)
        updated = self._steps.reconcile(
            now_ms,
            group,
            updated,
            target,
            request.topic_partitions,
            records,
            has_subscription_changed=names_changed or regex.status is not RegexStatus.UNCHANGED,
        )

        effects = Effects()
        if isinstance(before, ClassicGroup):  # it was converted
            effects.extend(self._classic.refuse_waiting(before, ErrorCode.REBALANCE_IN_PROGRESS))
        for record in records:
            replay(self._shard, record)
        effects.records.extend(records)
        if isinstance(before, ClassicGroup):
            for other in group.members.values():
                assert other.classic is not None
                timeout_ms = other.classic.session_timeout_ms
                self._deadlines.schedule_session(now_ms, group.group_id, other.member_id, timeout_ms)
        self._deadlines.schedule_session(now_ms, group.group_id, member_id)
        effects.add_reply(token, self._response(request, member, updated))
        # In Kafka another thread looks for the topics and the group learns of them a moment later; the member hears
        # of it with its next heartbeat either way.
        stored = self._shard.find(group.group_id, ConsumerGroup)
        if regex.to_resolve and stored is not None:
            for record in self._regexes.resolve(now_ms, stored, regex.to_resolve):
                replay(self._shard, record)
                effects.records.append(record)
        return effects

    def _group(self, group_id: str, records: Records, *, create: bool) -> ConsumerGroup:
        """The group, as a new one or one converted from a classic group where the member joins."""
        existing = self._shard.groups.get(group_id)
        if isinstance(existing, ConsumerGroup):
            return existing
        if existing is None and not create:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        if not create or (existing is not None and not isinstance(existing, ClassicGroup)):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        if existing is None:
            return ConsumerGroup(group_id, self._shard.timers)
        if existing.is_empty():
            records.extend(existing.tombstones())
            return ConsumerGroup(group_id, self._shard.timers)
        return self._migration.upgrade(existing, records)

    def _member(
        self, group: ConsumerGroup, member_id: str, request: ConsumerGroupHeartbeatRequest, records: Records
    ) -> ConsumerMember:
        is_joining = request.member_epoch == JOIN_EPOCH
        if request.instance_id is None:
            member = group.members.get(member_id) if is_joining else group.member_or_raise(member_id)
            member = member or ConsumerMember(member_id)
        elif is_joining:
            return self._steps.static_join(group, member_id, request.instance_id, records, is_classic=False)
        else:
            member = self._steps.static_member_or_raise(group, member_id, request.instance_id)
        check_epoch(member, request.member_epoch, request.topic_partitions)
        return member

    def _response(
        self, request: ConsumerGroupHeartbeatRequest, before: ConsumerMember, after: ConsumerMember
    ) -> ConsumerGroupHeartbeatResponse:
        """The assignment goes along when the member joins, tells all of itself, or gets another one."""
        is_full_request = (
            request.rebalance_timeout_ms != _NO_TIMEOUT
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        response = ConsumerGroupHeartbeatResponse(
            member_id=after.member_id,
            member_epoch=after.member_epoch,
            heartbeat_interval_ms=self._deadlines.heartbeat_interval_ms(request.group_id),
        )
        if request.member_epoch == JOIN_EPOCH or is_full_request or before.assigned != after.assigned:
            response.assignment = Assignment(
                topic_partitions=[
                    TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                    for topic_id, partitions in after.assigned.items()
                ]
            )
        return response

    # --- leaving ----------------------------------------------------------------------------------------------------

    def _leave(self, now_ms: int, token: object, request: ConsumerGroupHeartbeatRequest) -> Effects:
        group = self._shard.group_or_raise(request.group_id)
        if not isinstance(group, ConsumerGroup):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group.")
        response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.instance_id is None:
            effects = self._leaving.fence(now_ms, group, [group.member_or_raise(request.member_id)])
        else:
            member = self._steps.static_member_or_raise(group, request.member_id, request.instance_id)
            if request.member_epoch == STATIC_LEAVE_EPOCH:
                effects = self._leave_for_a_while(group, member)
            else:
                effects = self._leaving.fence(now_ms, group, [member])
        effects.add_reply(token, response)
        return effects

    def _leave_for_a_while(self, group: ConsumerGroup, member: ConsumerMember) -> Effects:
        """Keeps its partitions until its session ends: whoever comes back with the instance id gets them."""
        away = replace(
            member,
            member_epoch=STATIC_LEAVE_EPOCH,
            assigned={topic_id: dict.fromkeys(held, 0) for topic_id, held in member.assigned.items()},
            pending_revocation=NOTHING,
        )
        record = group_records.current_record(group.group_id, away)
        replay(self._shard, record)
        return Effects(records=(record,))


def _updated(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, client: Client) -> ConsumerMember:
    """What the request does not tell stays as it was."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if request.rebalance_timeout_ms == _NO_TIMEOUT else request.rebalance_timeout_ms
        ),
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        subscribed_topic_names=member.subscribed_topic_names if names is None else frozenset(names),
        subscribed_topic_regex=member.subscribed_topic_regex if regex is None else regex,
        client_id=client.client_id,
        client_host=client.client_host,
        classic=None,
    )


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
