"""ConsumerGroupDescribe: a group and its members as administrators see them."""

from __future__ import annotations

from broker.coordinator.group.base import ShardState
from broker.coordinator.group.consumer.group import ConsumerGroup
from broker.coordinator.group.consumer.member import ConsumerMember, Target, without_epochs
from controller.image import MetadataImage
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

_CLASSIC, _CONSUMER = 0, 1


def describe_group(shard: ShardState, group_id: str) -> DescribedGroup:
    group = shard.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        problem = "not found" if group is None else "is not a consumer group"
        return DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {problem}.",
        )
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name(),
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or shard.config.consumer_assignors[0],
        members=[_member(group, member, shard.image) for member in group.members.values()],
    )


def _member(group: ConsumerGroup, member: ConsumerMember, image: MetadataImage) -> Member:
    """A partition that the member has yet to give up is still its own."""
    has = dict(without_epochs(member.assigned))
    for topic_id, partitions in without_epochs(member.pending_revocation).items():
        has[topic_id] = has.get(topic_id, frozenset()) | partitions
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_named(has, image),
        target_assignment=_named(group.targets.get(member.member_id, {}), image),
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )


def _named(target: Target, image: MetadataImage) -> Assignment:
    """Topics that no longer exist are left out."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(
                topic_id=topic_id, topic_name=image.topics_by_id[topic_id].name, partitions=sorted(partitions)
            )
            for topic_id, partitions in target.items()
            if topic_id in image.topics_by_id
        ]
    )
