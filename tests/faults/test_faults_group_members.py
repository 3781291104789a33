"""kill -9 of the broker under running members of both protocols: they go on where they were."""

from __future__ import annotations

import pytest
from py4j.java_gateway import JavaGateway
from support.broker_process import BrokerProcess
from support.group_life import Feed, wait_for_records, wait_for_sharing
from support.java_clients import JavaConsumer
from support.wire import Wire

from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.describe_groups import DescribeGroupsRequest


def member_ids(broker: BrokerProcess, group: str, protocol: str) -> set[str]:
    with Wire(broker.port) as wire:
        if protocol == "classic":
            (found,) = wire.ask(DescribeGroupsRequest(groups=[group])).groups
        else:
            (found,) = wire.ask(ConsumerGroupDescribeRequest(group_ids=[group])).groups
        return {member.member_id for member in found.members}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_live_through_a_kill(fresh_broker: BrokerProcess, jvm: JavaGateway, protocol: str) -> None:
    """The group comes back from the log with its members, so nobody has to join again and no record is repeated."""
    feed = Feed(fresh_broker.bootstrap, {"a": 3, "b": 1})
    members = [
        JavaConsumer(jvm, fresh_broker.bootstrap, "group", group_protocol=protocol).subscribe("a", "b")
        for _ in range(2)
    ]
    try:
        wait_for_sharing(members, feed.partitions)
        feed.send()
        wait_for_records(members, feed.sent)
        before = member_ids(fresh_broker, "group", protocol)
        owned = [set(member.assigned) for member in members]
        for _ in range(2):
            fresh_broker.kill()
            fresh_broker.start()
            feed.send()
            wait_for_records(members, feed.sent)
        wait_for_sharing(members, feed.partitions)
        assert member_ids(fresh_broker, "group", protocol) == before
        assert [set(member.assigned) for member in members] == owned
    finally:
        for member in members:
            member.close()
        feed.close()
