"""A new target assignment for a group, as records."""

from __future__ import annotations

from dataclasses import dataclass

from broker.coordinator.group.consumer.assignors import ASSIGNORS, GroupSpec, MemberSpec
from broker.coordinator.group.consumer.assignors.spec import members_in_order
from broker.coordinator.group.consumer.group import ConsumerGroup
from broker.coordinator.group.consumer.group_records import Records, target_metadata_record, target_record
from broker.coordinator.group.consumer.member import NO_TARGET, ConsumerMember, Target
from broker.coordinator.group.consumer.reconcile import subscribed_topic_ids
from controller.image import MetadataImage


@dataclass(frozen=True, slots=True)
class TargetRequest:
    group: ConsumerGroup
    epoch: int
    """The group epoch that the target is for."""
    member: ConsumerMember
    """The member whose request this is: not yet in the group as it is now, or not in this shape."""
    is_homogeneous: bool
    assignor: str


def build_target(request: TargetRequest, image: MetadataImage, now_ms: int, records: Records) -> Target:
    """Appends a record for each member whose target changed and then the epoch; the target of the request's member.

    The epoch comes last: a log that ends in between still tells the old epoch, at which members lose nothing.
    """
    group, updated = request.group, request.member
    members = dict(group.members)
    predecessor = None if updated.instance_id is None else group.static_members.get(updated.instance_id)
    if predecessor is not None and predecessor != updated.member_id:
        members.pop(predecessor, None)
    members[updated.member_id] = updated
    specs: dict[str, MemberSpec] = {}
    for member_id, member in members.items():
        held = group.targets.get(member_id, NO_TARGET)
        if member is updated and predecessor is not None:
            held = group.targets.get(predecessor, NO_TARGET)
        subscribed = subscribed_topic_ids(member, image, group.resolved_regexes)
        specs[member_id] = MemberSpec(member.instance_id, subscribed, held)
    counts = {
        topic_id: len(image.topics_by_id[topic_id].partitions)
        for spec in specs.values()
        for topic_id in spec.subscribed
    }
    spec = GroupSpec(specs, request.is_homogeneous, counts)
    assignment = ASSIGNORS[request.assignor](spec)
    for member_id in members_in_order(spec):
        target = assignment.get(member_id, {})
        if group.targets.get(member_id) != target:
            records.append(target_record(group.group_id, member_id, target))
    records.append(target_metadata_record(group.group_id, request.epoch, now_ms))
    return assignment.get(updated.member_id, {})
