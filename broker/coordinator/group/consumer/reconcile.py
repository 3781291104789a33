"""How a member gets from what it has to its target: first it gives up, then it gets what others gave up."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from broker.coordinator.group.consumer.member import (
    NOTHING,
    ConsumerMember,
    MemberState,
    Owned,
    ResolvedRegex,
    Target,
)
from controller.image import MetadataImage
from protocol.errors import ApiError, ErrorCode
from protocol.uuids import Uuid


class TopicPartitions(Protocol):
    """What several messages have in common. Attributes are read only."""

    @property
    def topic_id(self) -> Uuid: ...

    @property
    def partitions(self) -> list[int]: ...


class Goal(NamedTuple):
    """Where the member is to get, and what it may take on the way."""

    target_epoch: int
    target: Target
    image: MetadataImage
    regexes: Mapping[str, ResolvedRegex]
    partition_epoch: Callable[[Uuid, int], int | None]
    """The epoch at which some member has the partition, None once nobody has."""
    has_subscription_changed: bool
    owned: Sequence[TopicPartitions] | None
    """What the member says it has; None if it did not say."""


def reconcile(member: ConsumerMember, goal: Goal) -> ConsumerMember:
    """The member's next state; the same object if nothing changes.

    Invariant: a partition is added only while nobody has it, and is kept as pending revocation, which counts as
    having it, until the member itself says that it no longer does. So it never has two owners.
    """
    if member.state is MemberState.STABLE:
        if member.member_epoch != goal.target_epoch:
            return _next_assignment(member, goal, member.member_epoch)
        return _drop_unsubscribed(member, goal) if goal.has_subscription_changed else member
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _still_owns(member.pending_revocation, goal.owned):
            return _drop_unsubscribed(member, goal) if goal.has_subscription_changed else member
        return _next_assignment(member, goal, member.member_epoch)
    if member.state is MemberState.UNRELEASED_PARTITIONS:
        return _next_assignment(member, goal, member.member_epoch)
    # A newer broker put the member into a state we do not know. Only one that has partitions can be helped: whoever
    # has none must start anew.
    if not goal.owned:
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
        )
    return _next_assignment(member, goal, goal.target_epoch)


def _still_owns(revoked: Owned, owned: Sequence[TopicPartitions] | None) -> bool:
    if owned is None:
        return True
    return any(
        partition in revoked.get(reported.topic_id, {}) for reported in owned for partition in reported.partitions
    )


def _next_assignment(member: ConsumerMember, goal: Goal, epoch_while_revoking: int) -> ConsumerMember:
    subscribed = subscribed_topic_ids(member, goal.image, goal.regexes)
    kept: dict[Uuid, dict[int, int]] = {}
    revoked: dict[Uuid, dict[int, int]] = {}
    added: dict[Uuid, list[int]] = {}
    has_unreleased = False
    for topic_id in dict.fromkeys((*goal.target, *member.assigned)):
        target: Collection[int] = goal.target.get(topic_id, frozenset()) if topic_id in subscribed else frozenset()
        current = member.assigned.get(topic_id, {})
        keep = {partition: epoch for partition, epoch in current.items() if partition in target}
        revoke = {partition: epoch for partition, epoch in current.items() if partition not in target}
        missing = sorted(partition for partition in target if partition not in current)
        pending = member.pending_revocation.get(topic_id, {})
        free = [p for p in missing if goal.partition_epoch(topic_id, p) is None or p in pending]
        has_unreleased = has_unreleased or len(free) < len(missing)
        if keep:
            kept[topic_id] = keep
        if revoke:
            revoked[topic_id] = revoke
        if free:
            added[topic_id] = free
    if revoked and _still_owns(revoked, goal.owned):
        revoking = replace(member, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending_revocation=revoked)
        return revoking.with_epoch(epoch_while_revoking)
    for topic_id, partitions in added.items():
        kept.setdefault(topic_id, {}).update(dict.fromkeys(partitions, goal.target_epoch))
    state = MemberState.UNRELEASED_PARTITIONS if has_unreleased else MemberState.STABLE
    return replace(member, state=state, assigned=kept, pending_revocation=NOTHING).with_epoch(goal.target_epoch)


def _drop_unsubscribed(member: ConsumerMember, goal: Goal) -> ConsumerMember:
    """The subscription changed and the new target is not there yet: what is no longer wanted goes at once."""
    subscribed = subscribed_topic_ids(member, goal.image, goal.regexes)
    unwanted = [topic_id for topic_id in member.assigned if topic_id not in subscribed]
    if not unwanted:
        return member
    kept = {topic_id: held for topic_id, held in member.assigned.items() if topic_id in subscribed}
    revoked = {topic_id: dict(held) for topic_id, held in member.pending_revocation.items()}
    for topic_id in unwanted:
        revoked.setdefault(topic_id, {}).update(member.assigned[topic_id])
    if _still_owns(revoked, goal.owned):
        revoking = replace(member, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending_revocation=revoked)
        return revoking.with_epoch(member.member_epoch)
    return replace(member, assigned=kept).with_epoch(member.member_epoch)


def subscribed_topic_ids(
    member: ConsumerMember, image: MetadataImage, regexes: Mapping[str, ResolvedRegex]
) -> frozenset[Uuid]:
    """The existing topics among those it named and those its regular expression was found to match."""
    names = member.subscribed_topic_names
    resolved = regexes.get(member.regex) if member.regex is not None else None
    if resolved is not None:
        names |= resolved.topics
    topics = (image.topics_by_name.get(name) for name in names)
    return frozenset(topic.topic_id for topic in topics if topic is not None)
