"""Requests of the consumer protocol (KIP-848) that no good client sends, to both servers: the same codes come back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.anchor import AnchorKafka
from support.broker_process import BrokerProcess
from support.group_requests import (
    SESSION_MS,
    beat,
    commit,
    consumer_beat,
    consumer_join,
    delete_offsets,
    fetch,
    join,
    leave,
    sync,
)
from support.processes import wait_until
from support.talk import Talk

from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.list_groups import ListGroupsRequest
from protocol.uuids import Uuid

pytestmark = pytest.mark.stock

ONE = "AAAAAAAAQAC0000000001A"
TWO = "AAAAAAAAQAC0000000002A"


def settled(talk: Talk, group: str, member: str, topic: str, topic_id: Uuid, partitions: int) -> int:
    """The epoch of a member that owns all partitions of the topic: an assignment may take a second to come."""
    answer = talk.wire.ask(consumer_join(group, member, topic), 1)
    owned: dict[Uuid, list[int]] = {}

    def owns_all() -> bool:
        nonlocal answer, owned
        assert answer.error_code == 0, answer
        if answer.assignment is not None:
            owned = {one.topic_id: one.partitions for one in answer.assignment.topic_partitions}
        answer = talk.wire.ask(consumer_beat(group, member, answer.member_epoch, owned=owned), 1)
        return len(owned.get(topic_id, [])) == partitions

    wait_until(owns_all, 20, f"{member} owns {topic}")
    epoch: int = answer.member_epoch
    return epoch


def refused_heartbeats(talk: Talk) -> None:
    group = "beats"
    talk.create_topic("beats")
    cases = {
        "no member id": consumer_join(group, "", "beats"),
        "empty instance": consumer_join(group, ONE, "beats", instance=""),
        "empty rack": consumer_beat(group, ONE, 0, topics=["beats"], owned={}, rack="", rebalance_ms=SESSION_MS),
        "no rebalance timeout": consumer_beat(group, ONE, 0, topics=["beats"], owned={}),
        "no subscription": consumer_beat(group, ONE, 0, owned={}, rebalance_ms=SESSION_MS),
        "owned partitions missing": consumer_beat(group, ONE, 0, topics=["beats"], rebalance_ms=SESSION_MS),
        "owns partitions": consumer_beat(
            group, ONE, 0, topics=["beats"], owned={Uuid(b"\7" * 16): [0]}, rebalance_ms=SESSION_MS
        ),
        "unknown assignor": consumer_beat(
            group, ONE, 0, topics=["beats"], owned={}, assignor="fair", rebalance_ms=SESSION_MS
        ),
        "bad regex": consumer_beat(group, ONE, 0, regex="(beats", owned={}, rebalance_ms=SESSION_MS),
        "epoch -3": consumer_beat(group, ONE, -3),
        "static leave without instance": consumer_beat(group, ONE, -2),
        "epoch of nobody": consumer_beat(group, ONE, 5),
        "leave of nobody": consumer_beat(group, ONE, -1),
    }
    for label, request in cases.items():
        talk.ask(label, request, 1)
    talk.ask("describe", ConsumerGroupDescribeRequest(group_ids=[group]), 1)


def members(talk: Talk) -> None:
    group = "epochs"
    topic_id = talk.create_topic("epochs", 3)
    epoch = settled(talk, group, ONE, "epochs", topic_id, 3)
    owned = {topic_id: [0, 1, 2]}
    for wrong in (epoch + 1, epoch + 100):
        talk.ask("epoch ahead", consumer_beat(group, ONE, wrong, owned=owned), 1)
    talk.ask("another member", consumer_beat(group, TWO, epoch, owned=owned), 1)
    talk.ask("group of someone else", consumer_beat("epochs-none", ONE, epoch, owned=owned), 1)
    talk.ask("regex on the way", consumer_beat(group, ONE, epoch, regex="[", owned=owned), 1)
    talk.ask("assignor on the way", consumer_beat(group, ONE, epoch, assignor="fair", owned=owned), 1)
    talk.ask("commit", commit(group, "epochs", member=ONE, generation=epoch), 9)
    talk.ask("commit ahead", commit(group, "epochs", member=ONE, generation=epoch + 1), 9)
    talk.ask("commit of another", commit(group, "epochs", member=TWO, generation=epoch), 9)
    talk.ask("commit without member", commit(group, "epochs"), 9)
    talk.ask("commit too old", commit(group, "epochs", member=ONE, generation=epoch + 1), 8)
    talk.ask("fetch", fetch(group, topics={"epochs": [0, 1]}, member=ONE, epoch=epoch), 9)
    talk.ask("fetch ahead", fetch(group, topics={"epochs": [0]}, member=ONE, epoch=epoch + 1), 9)
    talk.ask("fetch of another", fetch(group, topics={"epochs": [0]}, member=TWO, epoch=epoch), 9)
    talk.ask("fetch without member", fetch(group, topics={"epochs": [0]}), 9)
    talk.ask("delete offsets", delete_offsets(group, "epochs"), 0)
    talk.ask("delete", DeleteGroupsRequest(groups_names=[group]), 2)
    talk.ask("classic describe", DescribeGroupsRequest(groups=[group]), 5)
    talk.ask("classic describe", DescribeGroupsRequest(groups=[group]), 6)
    described = talk.wire.ask(ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=True), 1)
    for one in described.groups:
        one.group_epoch = one.assignment_epoch = one.group_epoch == one.assignment_epoch == epoch
        for member in one.members:
            member.member_epoch = member.member_epoch == epoch
    talk.note("consumer describe", described)
    talk.ask("classic heartbeat", beat(group, ONE, epoch), 4)
    talk.ask("classic sync", sync(group, ONE, epoch), 5)
    talk.ask("classic join of another type", join(group, kind="connect", topics=("epochs",)), 3)
    talk.ask("classic leave of nobody", leave(group, (TWO, None)), 5)
    listed = talk.wire.ask(ListGroupsRequest(types_filter=["consumer"]), 5)
    listed.groups = [one for one in listed.groups if one.group_id.startswith("epochs")]
    talk.note("list", listed)
    talk.ask("leave", consumer_beat(group, ONE, -1), 1)
    talk.ask("leave again", consumer_beat(group, ONE, -1), 1)
    talk.ask("commit of the gone", commit(group, "epochs", member=ONE, generation=epoch), 9)
    talk.ask("commit without member", commit(group, "epochs", offset=9), 9)
    talk.ask("fetch of the gone", fetch(group, topics={"epochs": [0]}, member=ONE, epoch=epoch), 9)
    talk.ask("delete offsets", delete_offsets(group, "epochs"), 0)
    talk.ask("delete", DeleteGroupsRequest(groups_names=[group]), 2)
    talk.ask("consumer describe", ConsumerGroupDescribeRequest(group_ids=[group]), 1)


def static_members(talk: Talk) -> None:
    group = "instances"
    topic_id = talk.create_topic("instances")
    settled(talk, "instances-before", ONE, "instances", topic_id, 1)  # the coordinator has heard of the new topic
    first = talk.ask("join", consumer_join(group, ONE, "instances", instance="one"), 1)
    epoch = first.member_epoch
    talk.ask("instance in use", consumer_join(group, TWO, "instances", instance="one"), 1)
    talk.ask("heartbeat of another", consumer_beat(group, TWO, epoch, owned={}, instance="one"), 1)
    talk.ask("unknown instance", consumer_beat(group, ONE, epoch, owned={}, instance="two"), 1)
    talk.ask("leave for now", consumer_beat(group, ONE, -2, instance="one"), 1)
    talk.ask("take over", consumer_join(group, TWO, "instances", instance="one"), 1)
    talk.ask("heartbeat of the fenced", consumer_beat(group, ONE, epoch, owned={}, instance="one"), 1)
    talk.ask("leave of the fenced", consumer_beat(group, ONE, -1, instance="one"), 1)
    talk.ask("commit of the fenced", commit(group, "instances", member=ONE, generation=epoch, instance="one"), 9)
    talk.ask("leave", consumer_beat(group, TWO, -1, instance="one"), 1)


SCENARIOS: dict[str, Callable[[Talk], None]] = {
    "refused heartbeats": refused_heartbeats,
    "members": members,
    "static members": static_members,
}


def transcript(scenario: Callable[[Talk], None], port: int) -> list[str]:
    with Talk(port) as talk:
        talk.find_coordinator("any")
        scenario(talk)
        return talk.lines


@pytest.mark.parametrize("name", SCENARIOS)
def test_same_answers_as_apache_kafka(name: str, anchor: AnchorKafka, broker: BrokerProcess) -> None:
    theirs = transcript(SCENARIOS[name], anchor.port)
    ours = transcript(SCENARIOS[name], broker.port)
    assert ours == theirs
