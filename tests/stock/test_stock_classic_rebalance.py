"""Rebalances of two members, step by step, on Barnabas and on Apache Kafka 4.3.1: the same answers come back.

Each member has a connection of its own, because a join or a sync waits for the other member.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.anchor import AnchorKafka
from support.broker_process import BrokerProcess
from support.group_requests import beat, commit, fetch, join, leave, sync
from support.talk import Talk
from support.wire import Wire

from broker.coordinator.partitioning import partition_for
from broker.coordinator.records import decode_record
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.sync_group import SyncGroupRequest
from protocol.records import iter_batches, iter_records
from protocol.schema import Message

pytestmark = pytest.mark.stock


def without_order(response: Any) -> Any:
    """Members come in the order of a hash map of random ids: without them, what they say can be put in order."""
    for described in (response, *getattr(response, "groups", ())):
        for member in getattr(described, "members", ()):
            member.member_id = ""
    return response


class Peer:
    """The second member: its requests may wait."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._wire = Wire(talk.port)
        self._sent: tuple[str, Message, int] | None = None

    def send(self, label: str, request: Message, version: int) -> None:
        self._wire.send_request(request, version)
        self._sent = (label, request, version)

    def answer(self) -> Any:
        assert self._sent is not None
        label, request, version = self._sent
        response = self._wire.read_response(type(request).API_KEY, version)
        self._talk.note(f"{label} v{version}", without_order(response))
        return response

    def close(self) -> None:
        self._wire.socket.close()


def describe(talk: Talk, label: str, group: str) -> None:
    response = talk.wire.ask(DescribeGroupsRequest(groups=[group]), 6)
    talk.note(f"describe {label}", without_order(response))


def until_rebalancing(talk: Talk, group: str, member: str, generation: int, instance: str | None = None) -> None:
    """The other member's join was sent over another connection: waits until it has arrived."""
    talk.until(beat(group, member, generation, instance), 4, lambda answer: answer.error_code == 27)


def two_dynamic_members(talk: Talk) -> None:
    group = "rebalance"
    talk.create_topic("rebalance")
    peer = Peer(talk)
    one = talk.ask("one: id", join(group), 9).member_id
    generation = talk.ask("one: join", join(group, one), 9).generation_id
    talk.ask("one: sync", sync(group, one, generation, assigned=(one,)), 5)
    two = talk.ask("two: id", join(group), 9).member_id
    talk.ask("two: heartbeat while pending", beat(group, two, generation), 4)
    peer.send("two: join", join(group, two), 9)
    until_rebalancing(talk, group, one, generation)
    describe(talk, "preparing", group)
    talk.ask("one: sync while preparing", sync(group, one, generation), 5)
    talk.ask("one: commit while preparing", commit(group, "rebalance", member=one, generation=generation), 9)
    talk.ask("two: commit while joining", commit(group, "rebalance", member=two, generation=generation), 9)
    talk.ask("one: joins too", join(group, one), 9)
    assert peer.answer().generation_id == generation + 1
    generation += 1
    describe(talk, "completing", group)
    talk.ask("one: heartbeat while completing", beat(group, one, generation), 4)
    talk.ask("one: heartbeat of the old generation", beat(group, one, generation - 1), 4)
    talk.ask("one: commit while completing", commit(group, "rebalance", member=one, generation=generation), 9)
    talk.ask("one: late commit", commit(group, "rebalance", member=one, generation=generation - 1), 9)
    talk.ask("one: lost answer", join(group, one), 9)
    peer.send("two: sync", sync(group, two, generation), 5)
    talk.ask("one: sync", sync(group, one, generation, assigned=(one, two)), 5)
    peer.answer()
    describe(talk, "stable", group)
    talk.ask("two: joins with nothing new", join(group, two), 9)
    talk.ask("two: joins with nothing new, old", join(group, two), 3)
    talk.ask("one: leaves", leave(group, (one, None)), 5)
    talk.ask("one: is gone", beat(group, one, generation), 4)
    talk.ask("two: heartbeat", beat(group, two, generation), 4)
    talk.ask("two: sync", sync(group, two, generation), 5)
    talk.ask("two: leads", join(group, two, topics=("other",)), 9)
    talk.ask("two: sync without assignments", sync(group, two, generation + 1), 5)
    talk.ask("two: leaves", leave(group, (two, None)), 5)
    describe(talk, "empty", group)
    talk.ask("fetch", fetch(group), 9)
    peer.close()


def a_new_leader_asks_again(talk: Talk) -> None:
    """A leader that joins a stable group again starts a rebalance; one that changes its mind while the assignment is
    awaited sends the other away."""
    group = "asking"
    peer = Peer(talk)
    first = talk.ask("one: join", join(group), 3)
    one, generation = first.member_id, first.generation_id
    talk.ask("one: sync", sync(group, one, generation, assigned=(one,)), 2)
    peer.send("two: join", join(group), 3)
    until_rebalancing(talk, group, one, generation)
    talk.ask("one: joins too", join(group, one), 3)
    two = peer.answer().member_id
    generation += 1
    peer.send("two: sync", sync(group, two, generation), 2)
    describe(talk, "completing", group)
    changed: JoinGroupRequest = join(group, one, topics=("other",))
    mover = Peer(talk)
    mover.send("one: changes its mind", changed, 3)
    assert peer.answer().error_code == 27  # whether its sync was there before or came afterwards
    peer.send("two: joins again", join(group, two), 3)
    mover.answer()
    peer.answer()
    generation += 1
    talk.ask("leave, old", _old_leave(group, two), 2)
    talk.ask("leave of the gone, old", _old_leave(group, two), 0)
    talk.ask("one: heartbeat", beat(group, one, generation), 3)
    describe(talk, "preparing", group)
    mover.close()
    peer.close()


def _old_leave(group: str, member: str) -> Message:
    request = leave(group)
    request.member_id = member
    return request


def static_leaders(talk: Talk) -> None:
    """A static leader returns under each version; its former self is fenced, also where it waits."""
    group = "leaders"
    peer = Peer(talk)
    first = talk.ask("a: join", join(group, instance="a"), 9)
    a, generation = first.member_id, first.generation_id
    talk.ask("a: sync", sync(group, a, generation, instance="a", assigned=(a,)), 5)
    peer.send("b: join", join(group, instance="b"), 9)
    until_rebalancing(talk, group, a, generation, "a")
    talk.ask("a: joins too", join(group, a, instance="a"), 9)
    b = peer.answer().member_id
    generation += 1
    request: SyncGroupRequest = sync(group, a, generation, instance="a", assigned=(a, b))
    talk.ask("a: sync", request, 5)
    talk.ask("b: sync", sync(group, b, generation, instance="b"), 5)
    for version in (9, 8, 5):
        a = talk.ask("a: returns", join(group, instance="a"), version).member_id
        talk.ask("a: sync", sync(group, a, generation, instance="a"), 5)
        b = talk.ask("b: returns", join(group, instance="b"), version).member_id
        talk.ask("b: sync", sync(group, b, generation, instance="b"), 5)
    describe(talk, "stable", group)
    peer.send("b: changes its topics", join(group, b, instance="b", topics=("other",)), 6)
    until_rebalancing(talk, group, a, generation, "a")
    third = Peer(talk)
    third.send("b: returns while it waits", join(group, instance="b", topics=("other",)), 9)
    assert peer.answer().error_code == 82
    talk.ask("a: joins too", join(group, a, instance="a"), 9)
    third.answer()
    describe(talk, "completing", group)
    talk.ask("both leave", leave(group, ("", "a"), ("", "b"), ("", "c")), 5)
    describe(talk, "empty", group)
    third.close()
    peer.close()


def a_whole_life(talk: Talk) -> None:
    """Everything that is stored for a group, from its first join to its deletion."""
    group = "stored"
    topic_id = talk.create_topic("stored", 2)
    one = talk.ask("one: id", join(group), 9).member_id
    generation = talk.ask("one: join", join(group, one, topics=("stored",)), 9).generation_id
    talk.ask("one: sync", sync(group, one, generation, assigned=(one,)), 5)
    talk.ask("commit", commit(group, "stored", 0, 1, member=one, generation=generation), 9)
    talk.ask("commit by id", commit(group, "", 1, member=one, generation=generation, topic_id=topic_id), 10)
    kept = commit(group, "stored", 0, offset=8, member=one, generation=generation)
    kept.retention_time_ms = 1_000_000
    talk.ask("commit with a retention time", kept, 4)
    talk.ask("one: leaves", leave(group, (one, None)), 5)
    first = talk.ask("a: join", join(group, instance="a"), 9)
    a, generation = first.member_id, first.generation_id
    talk.ask("a: sync", sync(group, a, generation, instance="a", assigned=(a,)), 5)
    talk.ask("a: returns", join(group, instance="a"), 9)
    talk.ask("a: leaves", leave(group, ("", "a")), 5)
    talk.ask("delete", DeleteGroupsRequest(groups_names=[group]), 2)
    talk.ask("simple", commit(group, "stored", 1, offset=3), 9)


SCENARIOS: dict[str, Callable[[Talk], None]] = {
    "two dynamic members": two_dynamic_members,
    "a new leader asks again": a_new_leader_asks_again,
    "static leaders": static_leaders,
    "a whole life": a_whole_life,
}


def transcript(scenario: Callable[[Talk], None], port: int) -> list[str]:
    with Talk(port) as talk:
        talk.find_coordinator("any")
        for group in ("rebalance", "asking", "leaders", "stored"):
            # A coordinator that only just came into being may still be loading.
            talk.until(fetch(group), 9, lambda answer: answer.groups[0].error_code == 0)
        scenario(talk)
        return talk.lines


@pytest.mark.parametrize("name", SCENARIOS)
def test_same_rebalances_as_apache_kafka(name: str, anchor: AnchorKafka, broker: BrokerProcess) -> None:
    theirs = transcript(SCENARIOS[name], anchor.port)
    ours = transcript(SCENARIOS[name], broker.port)
    assert ours == theirs


def stored(talk: Talk, group: str) -> list[str]:
    """The group's records in `__consumer_offsets`, with times as ages and without ids that a server made up."""
    name = "__consumer_offsets"
    known = talk.wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12).topics[0]
    index = partition_for(group, len(known.partitions))
    partition = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic=name, partitions=[partition])
    found = talk.wire.ask(FetchRequest(max_bytes=1 << 20, topics=[topic]), 12).responses[0].partitions[0]
    assert found.error_code == 0
    data = memoryview(found.records)
    talk.lines.clear()
    for position, header in iter_batches(data):
        for message in iter_records(data[position : position + header.size]):
            assert message.key is not None
            record = decode_record(message.key, message.value)
            if getattr(record.key, "group", None) != group:
                continue
            value: Any = record.value
            for field in ("commit_timestamp", "expire_timestamp", "current_state_timestamp"):
                time_ms = getattr(value, field, -1)
                if time_ms != -1:
                    setattr(value, field, round((time_ms - message.timestamp) / 100_000))
            talk.note(f"{type(record.key).__name__} v{record.value_version}", record.key)
            if value is not None:
                talk.note("value", value)
    return talk.lines


def test_same_records_as_apache_kafka(anchor: AnchorKafka, broker: BrokerProcess) -> None:
    found = []
    for port in (anchor.port, broker.port):
        with Talk(port) as talk:
            talk.find_coordinator("stored-too")
            talk.until(fetch("stored"), 9, lambda answer: answer.groups[0].error_code == 0)
            a_whole_life(talk)
            found.append(list(stored(talk, "stored")))
    theirs, ours = found
    assert ours == theirs
