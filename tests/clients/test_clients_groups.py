"""Groups of real consumers: kafka-python and the Java consumer, every assignor, both protocols, and the way between."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator

import pytest
from kafka import KafkaAdminClient
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from py4j.java_gateway import JavaGateway
from support.broker_process import BrokerProcess
from support.group_life import Feed, live, wait_for_records, wait_for_sharing
from support.group_requests import join
from support.java_clients import JavaConsumer
from support.processes import wait_until
from support.python_clients import Member, PythonConsumer
from support.scenario import Server
from support.wire import Wire

from protocol.messages.list_groups import ListGroupsRequest

_numbers = itertools.count()

PYTHON_ASSIGNORS = [
    RangePartitionAssignor,
    RoundRobinPartitionAssignor,
    StickyPartitionAssignor,
    CooperativeStickyAssignor,
]
JAVA_ASSIGNORS = ["RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor"]
JAVA_PACKAGE = "org.apache.kafka.clients.consumer"


@pytest.fixture
def name() -> str:
    return f"group-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def feed(broker: BrokerProcess, name: str) -> Iterator[Feed]:
    feed = Feed(broker.bootstrap, {f"{name}.a": 3, f"{name}.b": 2})
    yield feed
    feed.close()


def group_type(server: Server, group: str) -> str:
    with Wire(server.port) as wire:
        found = {one.group_id: one.group_type for one in wire.ask(ListGroupsRequest(), 5).groups}
    return str(found[group])


def topics_of(feed: Feed) -> list[str]:
    return sorted({topic for topic, _ in feed.partitions})


@pytest.mark.parametrize("assignor", PYTHON_ASSIGNORS, ids=lambda assignor: assignor.name)
def test_kafka_python(broker: BrokerProcess, feed: Feed, name: str, assignor: type) -> None:
    live(
        feed,
        lambda: PythonConsumer(broker.bootstrap, name, *topics_of(feed), partition_assignment_strategy=(assignor,)),
    )


@pytest.mark.parametrize("assignor", JAVA_ASSIGNORS)
def test_java_classic(broker: BrokerProcess, jvm: JavaGateway, feed: Feed, name: str, assignor: str) -> None:
    strategy = f"{JAVA_PACKAGE}.{assignor}"
    live(
        feed,
        lambda: JavaConsumer(jvm, broker.bootstrap, name, partition_assignment_strategy=strategy).subscribe(
            *topics_of(feed)
        ),
    )


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_java_consumer_protocol(broker: BrokerProcess, jvm: JavaGateway, feed: Feed, name: str, assignor: str) -> None:
    live(
        feed,
        lambda: JavaConsumer(
            jvm, broker.bootstrap, name, group_protocol="consumer", group_remote_assignor=assignor
        ).subscribe(*topics_of(feed)),
    )
    assert group_type(broker, name) == "consumer"


def test_regex_subscription(broker: BrokerProcess, jvm: JavaGateway, feed: Feed, name: str) -> None:
    """The broker evaluates the expression, for each member of the group."""
    live(
        feed,
        lambda: JavaConsumer(jvm, broker.bootstrap, name, group_protocol="consumer").subscribe_pattern(
            re.escape(name) + r"\.[ab]"
        ),
    )


def test_mixed_clients(broker: BrokerProcess, jvm: JavaGateway, feed: Feed, name: str) -> None:
    """One group of both clients: their range assignors read each other's subscriptions."""
    makers: Iterator[Callable[[], Member]] = iter(
        (
            lambda: PythonConsumer(
                broker.bootstrap, name, *topics_of(feed), partition_assignment_strategy=(RangePartitionAssignor,)
            ),
            lambda: JavaConsumer(
                jvm, broker.bootstrap, name, partition_assignment_strategy=f"{JAVA_PACKAGE}.RangeAssignor"
            ).subscribe(*topics_of(feed)),
        )
    )
    live(feed, lambda: next(makers)())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_topics_change_under_a_group(
    broker: BrokerProcess, jvm: JavaGateway, feed: Feed, name: str, protocol: str
) -> None:
    """Added partitions are consumed; those of a deleted topic are given up."""
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    member = JavaConsumer(
        jvm, broker.bootstrap, name, group_protocol=protocol, allow_auto_create_topics="false"
    ).subscribe(*topics_of(feed))
    try:
        wait_for_sharing([member], feed.partitions)
        admin.create_partitions({f"{name}.a": 4})
        feed.partitions.add((f"{name}.a", 3))
        wait_for_sharing([member], feed.partitions)
        feed.send()
        wait_for_records([member], feed.sent)
        if protocol == "consumer":  # the classic consumer tries to commit for the deleted topic for minutes
            admin.delete_topics([f"{name}.b"])
            feed.partitions -= {(f"{name}.b", 0), (f"{name}.b", 1)}
            wait_for_sharing([member], feed.partitions)
    finally:
        member.close()
        admin.close()


def test_live_migration_and_back(broker: BrokerProcess, jvm: JavaGateway, feed: Feed, name: str) -> None:
    """A classic group moves to the consumer protocol one member at a time, and back; no record is missed."""

    def member(protocol: str) -> JavaConsumer:
        return JavaConsumer(jvm, broker.bootstrap, name, group_protocol=protocol).subscribe(*topics_of(feed))

    everyone: list[JavaConsumer] = []

    def settle(*members: JavaConsumer) -> None:
        everyone.extend(one for one in members if one not in everyone)
        wait_for_sharing(members, feed.partitions)
        feed.send(2)
        wait_for_records(everyone, feed.sent)

    try:
        first = member("classic")
        settle(first)
        second = member("classic")
        settle(first, second)
        assert group_type(broker, name) == "classic"
        third = member("consumer")
        settle(first, second, third)
        assert group_type(broker, name) == "consumer"
        first.close()
        settle(second, third)
        second.close()
        settle(third)
        assert group_type(broker, name) == "consumer"
        fourth = member("classic")
        settle(third, fourth)
        assert group_type(broker, name) == "consumer"
        third.close()
        settle(fourth)
        assert group_type(broker, name) == "classic"
    finally:
        for one in everyone:
            one.close()


def test_static_members_come_back_without_a_rebalance(broker: BrokerProcess, feed: Feed, name: str) -> None:
    """KIP-345: a restarted member with an instance id takes its partitions up again; the other one notices nothing."""

    def member(instance: str) -> PythonConsumer:
        return PythonConsumer(broker.bootstrap, name, *topics_of(feed), group_instance_id=instance)

    first, second = member("one"), member("two")
    wait_for_sharing([first, second], feed.partitions)
    before = set(second.assigned)
    second.close()
    third = member("two")
    wait_for_sharing([first, third], feed.partitions)
    assert third.assigned == before
    for one in (first, third):
        one.close()


def test_a_silent_member_is_removed(broker: BrokerProcess, feed: Feed, name: str) -> None:
    """Its connection stays open, but no heartbeat comes within the session timeout."""
    with Wire(broker.port) as wire:
        silent = wire.ask(join(name, session_ms=2000, topics=tuple(topics_of(feed))), 3)
        assert silent.error_code == 0
        member = PythonConsumer(
            broker.bootstrap, name, *topics_of(feed), partition_assignment_strategy=(RangePartitionAssignor,)
        )
        wait_for_sharing([member], feed.partitions)
        member.close()
    wait_until(lambda: group_type(broker, name) == "classic", 5, "the group is still there")
