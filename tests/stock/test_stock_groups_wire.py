"""Group requests that no good client sends, to Barnabas and to Apache Kafka 4.3.1: the same codes come back.

Each scenario talks over raw connections and notes every answer; the two transcripts have to be equal, ids and texts
aside. The groups and topics of a scenario start with its own name.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.anchor import AnchorKafka
from support.broker_process import BrokerProcess
from support.group_requests import (
    NOBODY,
    beat,
    commit,
    delete_offsets,
    fetch,
    join,
    leave,
    old_fetch,
    sync,
)
from support.talk import Talk
from support.wire import Wire, batch

from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.uuids import Uuid

pytestmark = pytest.mark.stock


def joined(talk: Talk, group: str, topics: tuple[str, ...] = ("none",)) -> tuple[str, int]:
    """A stable group of one dynamic member."""
    member = talk.ask("join without id", join(group, topics=topics), 9).member_id
    first = talk.ask("join", join(group, member, topics=topics), 9)
    talk.ask("sync", sync(group, member, first.generation_id, assigned=(member,)), 5)
    return member, first.generation_id


def empty_group_ids(talk: Talk) -> None:
    for version in (0, 3, 5, 6, 9):
        talk.ask("join", join(""), version)
    for version in (0, 4, 5):
        talk.ask("sync", sync("", NOBODY, 1), version)
    for version in (0, 4):
        talk.ask("heartbeat", beat("", NOBODY, 1), version)
    talk.ask("leave", LeaveGroupRequest(group_id="", member_id=NOBODY), 2)
    talk.ask("leave", leave("", (NOBODY, None)), 5)
    topic_id = talk.create_topic("empty-group")
    talk.ask("commit", commit("", "empty-group"), 9)
    talk.ask("commit", commit("", "empty-group", topic_id=topic_id), 10)
    talk.ask("fetch", old_fetch("", {"empty-group": [0]}), 5)
    talk.ask("fetch", fetch("", topics={"empty-group": [0]}), 9)
    talk.ask("delete offsets", delete_offsets("", "empty-group"), 0)
    talk.ask("describe", DescribeGroupsRequest(groups=[""]), 5)
    talk.ask("delete", DeleteGroupsRequest(groups_names=[""]), 2)
    talk.ask("delete", DeleteGroupsRequest(groups_names=["", ""]), 2)
    talk.ask("consumer heartbeat", ConsumerGroupHeartbeatRequest(group_id="", member_id="m"), 1)
    talk.ask("consumer describe", ConsumerGroupDescribeRequest(group_ids=[""]), 1)


def missing_groups(talk: Talk) -> None:
    group = "missing-group"
    talk.create_topic("missing")
    for version in range(7):
        talk.ask("describe", DescribeGroupsRequest(groups=[group], include_authorized_operations=version >= 3), version)
    talk.ask("consumer describe", ConsumerGroupDescribeRequest(group_ids=[group]), 0)
    talk.ask("delete", DeleteGroupsRequest(groups_names=[group, "missing-other", group]), 2)
    talk.ask("delete offsets", delete_offsets(group, "missing"), 0)
    talk.ask("delete offsets of an unknown topic", delete_offsets(group, "missing-topic"), 0)
    for version in range(1, 8):
        talk.ask("fetch", old_fetch(group, {"missing": [0, 7], "missing-topic": [0]}), version)
    for version in (8, 9):
        talk.ask("fetch", fetch(group, topics={"missing": [0, 7], "missing-topic": [0]}), version)
        talk.ask("fetch all", fetch(group, "missing-other"), version)
    talk.ask("fetch", fetch(group, ids={Uuid(b"\7" * 16): [0, 1]}), 10)
    talk.ask("fetch as a member", fetch(group, topics={"missing": [0]}, member=NOBODY, epoch=3), 9)
    talk.ask("fetch as no member", fetch(group, topics={"missing": [0]}, member="", epoch=-1), 9)
    talk.ask("fetch all, old", old_fetch(group, None), 4)
    talk.ask("heartbeat", beat(group, NOBODY, 1), 4)
    talk.ask("sync", sync(group, NOBODY, 1), 5)
    talk.ask("sync, old", sync(group, NOBODY, 1), 2)
    talk.ask("leave", leave(group, (NOBODY, None), ("", "instance")), 5)
    talk.ask("leave, old", LeaveGroupRequest(group_id=group, member_id=NOBODY), 1)
    talk.ask("join as a member", join(group, NOBODY), 9)
    talk.ask("commit with a generation", commit(group, "missing", member=NOBODY, generation=4), 9)


def refused_joins(talk: Talk) -> None:
    group = "joins"
    talk.ask("session too short", join(group, session_ms=1), 9)
    talk.ask("session too long", join(group, session_ms=2_000_000_000), 9)
    talk.ask("no protocols", join(group, protocols=()), 9)
    talk.ask("no protocol type", join(group, kind=""), 9)
    member, generation = joined(talk, group)
    talk.ask("other type", join(group, kind="connect"), 3)
    talk.ask("no common protocol", join(group, protocols=("sticky",)), 3)
    talk.ask("unknown member", join(group, NOBODY), 9)
    talk.ask("unknown static member", join(group, NOBODY, instance="one"), 9)
    talk.ask("sync without protocol", sync(group, member, generation, protocol=None), 5)
    talk.ask("sync of another type", sync(group, member, generation, kind="connect"), 5)
    talk.ask("sync of another protocol", sync(group, member, generation, protocol="sticky"), 5)
    talk.ask("sync of another generation", sync(group, member, generation + 1), 5)
    talk.ask("sync of another member", sync(group, NOBODY, generation), 5)
    talk.ask("sync again", sync(group, member, generation), 5)
    for wrong in (-1, 0, generation - 1, generation + 1):
        talk.ask(f"heartbeat {wrong}", beat(group, member, wrong), 4)
    talk.ask("heartbeat of another member", beat(group, NOBODY, generation), 4)
    talk.ask("heartbeat of an instance", beat(group, member, generation, "one"), 4)
    talk.ask("heartbeat", beat(group, member, generation), 4)
    for version in (0, 4, 5, 6):
        talk.ask("describe", DescribeGroupsRequest(groups=[group], include_authorized_operations=version > 3), version)
    talk.ask("consumer describe", ConsumerGroupDescribeRequest(group_ids=[group]), 1)
    talk.ask("delete", DeleteGroupsRequest(groups_names=[group]), 2)
    talk.ask("leave of another", leave(group, (NOBODY, None)), 5)
    talk.ask("leave of both", leave(group, (NOBODY, None), (member, None)), 5)
    talk.ask("heartbeat of the gone", beat(group, member, generation), 4)
    talk.ask("describe empty", DescribeGroupsRequest(groups=[group]), 5)
    talk.ask("delete", DeleteGroupsRequest(groups_names=[group]), 2)


def member_commits(talk: Talk) -> None:
    group = "commits"
    topic_id = talk.create_topic("commits", 2)
    member, generation = joined(talk, group, ("commits",))
    talk.ask("good", commit(group, "commits", 0, 1, member=member, generation=generation), 9)
    talk.ask("good by id", commit(group, "", 0, member=member, generation=generation, topic_id=topic_id), 10)
    talk.ask("unknown id", commit(group, "", 0, member=member, generation=generation, topic_id=Uuid(b"\7" * 16)), 10)
    talk.ask("unknown topic", commit(group, "commits-none", 0, 1, member=member, generation=generation), 9)
    talk.ask("unknown partition", commit(group, "commits", 0, 9, member=member, generation=generation), 9)
    for wrong in (-1, 0, generation + 1):
        talk.ask(f"generation {wrong}", commit(group, "commits", member=member, generation=wrong), 9)
    talk.ask("unknown member", commit(group, "commits", member=NOBODY, generation=generation), 9)
    talk.ask("no member", commit(group, "commits"), 9)
    talk.ask("no member, old", commit(group, "commits"), 2)
    talk.ask("unknown instance", commit(group, "commits", member=member, generation=generation, instance="one"), 9)
    metadata = {"full": "m" * 4096, "too much": "m" * 4097, "null": None, "empty": ""}
    for what, text in metadata.items():
        good = commit(group, "commits", 1, offset=7, member=member, generation=generation, metadata=text)
        talk.ask(f"metadata {what}", good, 9)
    talk.ask("negative", commit(group, "commits", 0, offset=-5, member=member, generation=generation), 9)
    talk.ask("fetch", fetch(group, topics={"commits": [0, 1, 2]}), 9)
    talk.ask("fetch by id", fetch(group, ids={topic_id: [0, 1]}), 10)
    talk.ask("fetch all by id", fetch(group), 10)
    talk.ask("fetch all, old", old_fetch(group, None), 7)
    talk.ask("fetch as another", fetch(group, topics={"commits": [0]}, member=NOBODY, epoch=3), 9)
    talk.ask("delete subscribed", delete_offsets(group, "commits", 0), 0)
    talk.ask("leave", leave(group, (member, None)), 5)
    talk.ask("commit of the gone", commit(group, "commits", member=member, generation=generation), 9)
    talk.ask("commit without member", commit(group, "commits", offset=11), 9)
    talk.ask("delete offsets", delete_offsets(group, "commits", 0, 8), 0)
    talk.ask("fetch", fetch(group, topics={"commits": [0, 1]}), 9)
    talk.ask("delete", DeleteGroupsRequest(groups_names=[group]), 2)
    talk.ask("fetch deleted", fetch(group), 9)
    talk.ask("simple consumer", commit("commits-simple", "commits", offset=3), 9)
    talk.ask("describe simple", DescribeGroupsRequest(groups=["commits-simple"]), 6)
    talk.ask("delete offset of simple", delete_offsets("commits-simple", "commits"), 0)
    talk.ask("describe gone", DescribeGroupsRequest(groups=["commits-simple"]), 6)


def static_members(talk: Talk) -> None:
    group = "static"
    first = talk.ask("join", join(group, instance="one"), 9)
    old, generation = first.member_id, first.generation_id
    talk.ask("sync", sync(group, old, generation, instance="one", assigned=(old,)), 5)
    again = talk.ask("join again", join(group, instance="one"), 9)
    new, generation = again.member_id, again.generation_id
    talk.ask("sync of the fenced", sync(group, old, generation, instance="one"), 5)
    talk.ask("heartbeat of the fenced", beat(group, old, generation, "one"), 4)
    talk.ask("heartbeat of the fenced, without instance", beat(group, old, generation), 4)
    talk.ask("join of the fenced", join(group, old, instance="one"), 9)
    talk.create_topic("static")
    talk.ask("commit of the fenced", commit(group, "static", member=old, generation=generation, instance="one"), 9)
    talk.ask("leave of the fenced", leave(group, (old, "one")), 5)
    talk.ask("heartbeat", beat(group, new, generation, "one"), 4)
    talk.ask("unknown instance", beat(group, new, generation, "two"), 4)
    talk.ask("describe", DescribeGroupsRequest(groups=[group]), 6)
    talk.ask("leave of unknown", leave(group, ("", "two")), 5)
    talk.ask("leave by instance", leave(group, ("", "one")), 5)
    talk.ask("heartbeat of the gone", beat(group, new, generation, "one"), 4)


def listed_groups(talk: Talk) -> None:
    talk.create_topic("listed")
    joined(talk, "listed-classic")
    talk.ask("simple", commit("listed-simple", "listed"), 9)
    plain = talk.ask("connect", join("listed-connect", kind="connect", protocols=("default",)), 3)
    talk.ask("connect sync", sync("listed-connect", plain.member_id, plain.generation_id, kind="connect"), 2)

    def noted(label: str, version: int, states: list[str] | None = None, types: list[str] | None = None) -> None:
        answer = talk.wire.ask(ListGroupsRequest(states_filter=states or [], types_filter=types or []), version)
        answer.groups = [group for group in answer.groups if group.group_id.startswith("listed")]
        talk.note(f"{label} v{version}", answer)

    for version in range(6):
        noted("list", version)
    for states in (["Stable"], ["stable", "EMPTY"], ["Dead"], ["nonsense"], ["CompletingRebalance"]):
        noted(f"list {states}", 4, states)
        noted(f"list {states}", 5, states)
    for types in (["classic"], ["CLASSIC"], ["consumer"], ["share"], ["nonsense"]):
        noted(f"list {types}", 5, None, types)
    noted("list both", 5, ["Empty"], ["Classic"])


def internal_topic(talk: Talk) -> None:
    data = PartitionProduceData(index=0, records=batch(b"x"))
    topic = TopicProduceData(name="__consumer_offsets", partition_data=[data])
    talk.ask("produce", ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), 12)
    answer = talk.wire.ask(FindCoordinatorRequest(coordinator_keys=["a", "", "b"]), 4)
    for found in answer.coordinators:
        found.port = found.port == talk.port
    talk.note("find", answer)
    for kind in (2, 9):
        for version in (1, 4, 6):
            keys = {"coordinator_keys": ["a"]} if version >= 4 else {"key": "a"}
            talk.ask(f"find {kind}", FindCoordinatorRequest(key_type=kind, **keys), version)


SCENARIOS: dict[str, Callable[[Talk], None]] = {
    "empty group ids": empty_group_ids,
    "missing groups": missing_groups,
    "refused joins": refused_joins,
    "member commits": member_commits,
    "static members": static_members,
    "listed groups": listed_groups,
    "internal topic": internal_topic,
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


def test_a_waiting_join_holds_up_nobody(broker: BrokerProcess) -> None:
    """A rebalance waits for a member that does not come back; other connections are served meanwhile."""
    group = "waiting"
    with Talk(broker.port) as talk:
        talk.find_coordinator(group)
        member, generation = joined(talk, group)
        second, third = Wire(broker.port), Wire(broker.port)
        second.send_request(join(group), 3)
        assert third.ask(beat(group, member, generation), 4).error_code == 27
        third.send_request(join(group, member), 3)
        first_generation = third.read_response(11, 3)
        second_generation = second.read_response(11, 3)
        assert first_generation.generation_id == second_generation.generation_id == generation + 1
        # Responses of one connection stay in order: the sync that waits for the leader's, then the heartbeat.
        second.send_request(sync(group, second_generation.member_id, generation + 1), 2)
        second.send_request(beat(group, second_generation.member_id, generation + 1), 2)
        leader = first_generation.leader
        assert leader == member
        third.ask(sync(group, member, generation + 1, assigned=(member, second_generation.member_id)), 2)
        assert second.read_response(14, 2).error_code == 0
        assert second.read_response(12, 2).error_code == 0
        second.socket.close()
        third.socket.close()
