"""DescribeGroups, ListGroups and DeleteGroups: what administrators see of the groups of a shard."""

from __future__ import annotations

from collections.abc import Sequence

from broker.coordinator.effects import Effects
from broker.coordinator.group.base import ShardState
from broker.coordinator.group.classic.group import ClassicGroup, ClassicMember, ClassicState
from protocol.errors import ApiError, ErrorCode
from protocol.messages.delete_groups import DeletableGroupResult
from protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from protocol.messages.list_groups import ListedGroup

DESCRIBE_NOT_FOUND_SINCE = 6
"""KIP-1043: older clients are told of a dead group instead."""


def describe_group(shard: ShardState, group_id: str, api_version: int) -> DescribedGroup:
    """Groups of the consumer protocol have an API of their own; here they do not exist."""
    group = shard.groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        described = DescribedGroup(group_id=group_id, group_state=ClassicState.DEAD.value)
        if api_version >= DESCRIBE_NOT_FOUND_SINCE:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = f"Group {group_id} {'not found' if group is None else 'is not a classic group'}."
        return described
    is_stable = group.state is ClassicState.STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[_described(group, member, with_metadata=is_stable) for member in group.members.values()],
    )


def _described(group: ClassicGroup, member: ClassicMember, *, with_metadata: bool) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=(member.metadata(group.protocol_name or "") or b"") if with_metadata else b"",
        member_assignment=member.assignment,
    )


def list_groups(shard: ShardState, states_filter: Sequence[str], types_filter: Sequence[str]) -> list[ListedGroup]:
    """Filters know no case; a state or type nobody knows lets nothing through."""
    states = {state.strip().lower() for state in states_filter}
    types = {kind.lower() for kind in types_filter}
    return [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.listed_protocol_type(),
            group_state=group.state_name(),
            group_type=group.group_type.value,
        )
        for group in shard.groups.values()
        if (not states or group.state_name().lower() in states)
        and (not types or group.group_type.value.lower() in types)
    ]


def delete_groups(shard: ShardState, token: object, group_ids: Sequence[str]) -> Effects:
    """Deletes what may be deleted: the offsets first, then the group, so that no reader of the log sees it return."""
    effects = Effects()
    results = []
    for group_id in group_ids:
        code = ErrorCode.NONE
        try:
            group = shard.group_or_raise(group_id)
            group.check_delete()
        except ApiError as error:
            code = error.code
        else:
            effects.records.extend(shard.offsets.remove_all(group_id))
            effects.records.extend(group.tombstones())
            shard.drop(group_id)
        results.append(DeletableGroupResult(group_id=group_id, error_code=code))
    effects.add_reply(token, results)
    return effects
