"""The group service: where groups live, how `__consumer_offsets` comes, grows and goes, what clients are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from support.fake_broker import NODE_ID, FakeBroker
from support.group_requests import beat, commit, fetch, join, leave, old_fetch, sync
from support.logs import log_config

from broker.coordinator.partitioning import partition_for
from broker.coordinator.service import GroupService
from broker.internal_topics import OFFSETS_TOPIC
from broker.partition import Partition
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.list_groups import ListGroupsRequest
from storage.log import Log

PARTITIONS = 4
SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": str(PARTITIONS),
    "group.initial.rebalance.delay.ms": "0",
}


class LocalReplicas:
    """Opens a log for every partition that the image gives to this node, as the replica manager does."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log_settings: dict[str, Any] = {}
        self.broker: FakeBroker | None = None
        self.open: dict[tuple[Any, int], Partition] = {}

    def partition_or_none(self, topic: str, index: int) -> Partition | None:
        assert self.broker is not None
        image = self.broker.image.topics_by_name.get(topic)
        if image is None or index not in image.partitions:
            return None
        partition = self.open.get((image.topic_id, index))
        if partition is None:
            path = self.directory / str(image.topic_id) / f"{topic}-{index}"
            path.parent.mkdir(parents=True, exist_ok=True)
            log = Log.open(str(path), topic, index, log_config(**self.log_settings))
            partition = Partition(topic, index, image.topic_id, NODE_ID, log)
            self.open[image.topic_id, index] = partition
        partition.on_image(image.partitions[index])
        return partition

    def open_log(self, group: str) -> Log:
        """Of the partition that the group's offsets are in."""
        assert self.broker is not None
        topic = self.broker.image.topics_by_name[OFFSETS_TOPIC]
        return self.open[topic.topic_id, partition_for(group, PARTITIONS)].log


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[FakeBroker]:
    broker = FakeBroker(SETTINGS).register()
    replicas = LocalReplicas(tmp_path)
    replicas.broker = broker
    broker.replicas = cast(Any, replicas)
    broker.groups = GroupService(broker.config, NODE_ID, cast(Any, replicas), broker.image)
    broker.controller.on_change = broker.groups.on_image
    yield broker
    await broker.groups.shutdown()


async def found(broker: FakeBroker, *groups: str) -> list[ErrorCode]:
    answer = await broker.ask(FindCoordinatorRequest(coordinator_keys=list(groups)), 4)
    return [ErrorCode(one.error_code) for one in answer.coordinators]


async def commit_code(broker: FakeBroker, group: str, topic: str = "orders") -> ErrorCode:
    answer = await broker.ask(commit(group, topic), 9)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def restarted(broker: FakeBroker) -> None:
    """The same logs under a new service."""
    await broker.groups.shutdown()
    broker.groups = GroupService(broker.config, NODE_ID, cast(Any, broker.replicas), broker.image)
    broker.controller.on_change = broker.groups.on_image


async def test_the_first_search_creates_the_topic(broker: FakeBroker) -> None:
    broker.create("orders")
    assert await commit_code(broker, "g") == ErrorCode.NOT_COORDINATOR
    answers = await asyncio.gather(*(found(broker, "a", "b") for _ in range(5)))
    assert answers == [[ErrorCode.NONE, ErrorCode.NONE]] * 5
    created = [request for request in broker.controller.requests if type(request).__name__ == "CreateTopicsRequest"]
    assert len(created) == 1
    assert len(broker.image.topics_by_name[OFFSETS_TOPIC].partitions) == PARTITIONS
    assert broker.image.topic_configs(OFFSETS_TOPIC)["cleanup.policy"] == "compact"
    assert await commit_code(broker, "g") == ErrorCode.NONE


async def test_too_few_brokers_for_the_replication_factor(caplog: pytest.LogCaptureFixture) -> None:
    """As in Kafka the factor is not lowered; the log says why there is no coordinator."""
    broker = FakeBroker({**SETTINGS, "offsets.topic.replication.factor": "3"}).register()
    assert await found(broker, "a") == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert "__consumer_offsets cannot be created" in caplog.text
    assert "INVALID_REPLICATION_FACTOR" in caplog.text


async def test_groups_are_spread_and_survive_a_restart(broker: FakeBroker) -> None:
    broker.create("orders")
    await found(broker, "any")
    groups = [f"group-{number}" for number in range(20)]
    assert {partition_for(group, PARTITIONS) for group in groups} == set(range(PARTITIONS))
    for group in groups:
        assert await commit_code(broker, group) == ErrorCode.NONE
    await restarted(broker)
    assert await commit_code(broker, groups[0]) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    listed = await broker.ask(ListGroupsRequest())
    assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await broker.groups.loaded()
    listed = await broker.ask(ListGroupsRequest())
    assert sorted(group.group_id for group in listed.groups) == sorted(groups)
    answer = await broker.ask(fetch(*groups, topics={"orders": [0]}), 9)
    assert [group.topics[0].partitions[0].committed_offset for group in answer.groups] == [5] * 20


async def test_an_offset_is_not_told_before_it_is_synced(broker: FakeBroker) -> None:
    """flush.messages=1: OffsetFetch told of a commit whose sync was still to come. The broker dies then, and the next
    OffsetFetch gives an older offset. What it tells is also not what was committed while it waited."""
    cast(Any, broker.replicas).log_settings = {"flush_messages": 1}
    broker.create("orders")
    await found(broker, "g")
    committing = asyncio.ensure_future(broker.ask(commit("g", "orders", offset=5), 9))
    await asyncio.sleep(0)
    log = cast(Any, broker.replicas).open_log("g")
    fetching = [
        asyncio.ensure_future(broker.ask(fetch("g", "other", topics={"orders": [0]}), 9)),
        asyncio.ensure_future(broker.ask(old_fetch("g", {"orders": [0]}), 1)),
    ]
    synced: list[int] = []
    for one in fetching:
        one.add_done_callback(lambda _: synced.append(log.recovery_point))
    await asyncio.sleep(0)
    assert not committing.done()
    later = asyncio.ensure_future(broker.ask(commit("g", "orders", offset=6), 9))
    several, single = await asyncio.gather(*fetching)
    assert len(synced) == 2 and min(synced) >= 1
    assert [group.topics[0].partitions[0].committed_offset for group in several.groups] == [5, -1]
    assert single.topics[0].partitions[0].committed_offset == 5
    await asyncio.gather(committing, later)


async def test_while_a_group_is_loaded(broker: FakeBroker) -> None:
    """Everyone is told to wait, but a heartbeat is believed: nobody knows better. Who brings an assignment is to join
    again: told to wait, the Java consumer would throw. The fault test found that."""
    broker.create("orders")
    await found(broker, "any")
    for number in range(8):
        await commit_code(broker, f"group-{number}")
    await restarted(broker)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await broker.ask(beat("group-1", "m", 1))).error_code == ErrorCode.NONE
    assert (await broker.ask(join("group-1"))).error_code == loading
    assert (await broker.ask(sync("group-1", "m", 1))).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert (await broker.ask(leave("group-1", ("m", None)))).error_code == loading
    assert (await broker.ask(fetch("group-1"), 9)).groups[0].error_code == loading
    assert (await broker.ask(old_fetch("group-1", None), 3)).error_code == loading
    old = await broker.ask(old_fetch("group-1", {"orders": [0, 1]}), 1)
    assert [one.error_code for one in old.topics[0].partitions] == [loading, loading]
    assert (await broker.ask(DescribeGroupsRequest(groups=["group-1"]))).groups[0].error_code == loading
    assert (await broker.ask(DeleteGroupsRequest(groups_names=["group-1"]))).results[0].error_code == loading
    await broker.groups.loaded()
    assert (await broker.ask(beat("group-1", "m", 1))).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_offsets_of_a_deleted_topic_go_with_it(broker: FakeBroker) -> None:
    broker.create("orders")
    broker.create("kept")
    await found(broker, "g")
    await commit_code(broker, "g")
    await commit_code(broker, "g", "kept")
    await broker.controller.delete_topics(
        DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")]), principal="", api_version=6
    )
    answer = await broker.ask(fetch("g"), 9)
    assert [topic.name for topic in answer.groups[0].topics] == ["kept"]


async def test_more_partitions_do_not_move_groups(broker: FakeBroker) -> None:
    """Until the next start, as in Kafka: a group's offsets would stay behind in the old partition."""
    broker.create("orders")
    await found(broker, "g")
    groups = [f"group-{number}" for number in range(10)]
    for group in groups:
        await commit_code(broker, group)
    more = CreatePartitionsTopic(name=OFFSETS_TOPIC, count=PARTITIONS + 3, assignments=None)
    made = await broker.controller.create_partitions(CreatePartitionsRequest(topics=[more]), principal="")
    assert made.results[0].error_code == ErrorCode.NONE
    answer = await broker.ask(fetch(*groups, topics={"orders": [0]}), 9)
    assert [group.topics[0].partitions[0].committed_offset for group in answer.groups] == [5] * 10


async def test_the_topic_is_deleted_and_comes_anew(broker: FakeBroker) -> None:
    broker.create("orders")
    await found(broker, "g")
    await commit_code(broker, "g")
    joined = await broker.ask(join("members"), 3)
    assert joined.error_code == ErrorCode.NONE
    waiting = asyncio.ensure_future(broker.ask(join("members"), 3))
    await asyncio.sleep(0)
    await broker.controller.delete_topics(
        DeleteTopicsRequest(topics=[DeleteTopicState(name=OFFSETS_TOPIC)]), principal="", api_version=6
    )
    assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
    assert await commit_code(broker, "g") == ErrorCode.NOT_COORDINATOR
    assert await found(broker, "g") == [ErrorCode.NONE]
    assert (await broker.ask(fetch("g"), 9)).groups[0].topics == []
    assert await commit_code(broker, "g") == ErrorCode.NONE


async def test_a_stopping_broker_lets_waiting_members_go(broker: FakeBroker) -> None:
    await found(broker, "g")
    await broker.ask(join("g"), 3)
    waiting = asyncio.ensure_future(broker.ask(join("g"), 3))
    await asyncio.sleep(0)
    broker.groups.stop_accepting()
    assert (await waiting).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await broker.ask(join("g"), 3)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_leadership_goes_and_comes(broker: FakeBroker) -> None:
    """The shards of partitions that another node leads are closed; with leadership they read the log anew."""
    broker.create("orders")
    await found(broker, "g")
    await commit_code(broker, "g")
    image = broker.image.topics_by_name[OFFSETS_TOPIC]
    index = partition_for("g", PARTITIONS)
    broker.groups._apply(index, image.partitions[index]._replace(leader=NODE_ID + 1))
    assert await commit_code(broker, "g") == ErrorCode.NOT_COORDINATOR
    assert (await broker.ask(beat("g", "m", 1))).error_code == ErrorCode.NOT_COORDINATOR
    broker.groups._apply(index, image.partitions[index])
    await broker.groups.loaded()
    answer = await broker.ask(fetch("g"), 9)
    assert answer.groups[0].topics[0].partitions[0].committed_offset == 5
