"""Faults of disks and of the network, one at a time, on three controllers in one process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.metadata import create, heartbeat, register_broker, topic
from support.quorum_in_process import InProcessQuorum, until

from controller.checkpoint import list_snapshots
from controller.controller import Controller
from controller.delta import MetadataError
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from protocol.messages.vote import PartitionData, TopicData, VoteRequest
from protocol.uuids import METADATA_TOPIC_ID, Uuid

BROKER = 7


@pytest.fixture
async def quorum(tmp_path: Path) -> AsyncIterator[InProcessQuorum]:
    made = InProcessQuorum(tmp_path)
    await made.start()
    leader = await made.leader()
    await until(lambda: leader.image.features.metadata_version > 0)
    await register_broker(leader, BROKER)
    try:
        yield made
    finally:
        made.network.heal()
        await made.stop()


async def created(controller: Controller, *names: str, timeout_ms: int = 5000) -> list[int]:
    request: CreateTopicsRequest = create(*map(topic, names), timeout_ms=timeout_ms)
    return [result.error_code for result in (await controller.create_topics(request)).topics]


def others(quorum: InProcessQuorum, controller: Controller) -> list[Controller]:
    return [one for one in quorum.network.nodes.values() if one is not controller]


def knows(controller: Controller, *names: str) -> bool:
    return all(name in controller.image.topics_by_name for name in names)


async def test_every_controller_has_the_image_of_the_leader(quorum: InProcessQuorum) -> None:
    leader = await quorum.leader()
    assert await created(leader, "a", "b") == [0, 0]
    for follower in others(quorum, leader):
        assert await created(follower, "c") == [ErrorCode.NOT_CONTROLLER]
        await until(lambda f=follower: knows(f, "a", "b"))  # type: ignore[misc]
        assert follower.image.topics_by_id == leader.image.topics_by_id
        assert follower.leader_id == leader.controller_id


async def test_without_a_majority_nothing_changes_and_reads_go_on(quorum: InProcessQuorum) -> None:
    """The change is appended where nobody else can see it. Later a majority without it decides, and it is gone."""
    leader = await quorum.leader()
    assert await created(leader, "kept") == [0]
    rest = others(quorum, leader)
    await until(lambda: all(knows(one, "kept") for one in rest))
    quorum.network.isolate(leader.controller_id, [one.controller_id for one in rest])
    assert await created(leader, "half", timeout_ms=100) == [ErrorCode.REQUEST_TIMED_OUT]
    assert knows(leader, "kept") and not knows(leader, "half")
    waiting = asyncio.create_task(created(leader, "later"))
    next_leader = await quorum.leader(other_than=leader.controller_id)
    assert await created(next_leader, "new") == [0]
    assert await waiting == [ErrorCode.NOT_CONTROLLER], "deposed: it has heard of no majority for too long"
    quorum.network.heal()
    await until(lambda: knows(leader, "new"))
    assert not knows(leader, "half") and not knows(leader, "later")
    assert await created(next_leader, "half", "later") == [0, 0]


async def test_a_change_in_the_step_that_deposes_the_leader_is_forgotten(quorum: InProcessQuorum) -> None:
    """The loop stood still, so the leader learns with its next change that it has heard of no majority for too long:
    the batch is in its log, and it leads no more. What was left of it used to be published when it led again."""
    leader = await quorum.leader()
    assert await created(leader, "kept") == [0]
    rest = others(quorum, leader)
    published = [leader.image.offset]
    leader.subscribe(lambda image, delta: published.append(image.offset))
    quorum.network.isolate(leader.controller_id, [one.controller_id for one in rest])
    time.sleep(1.8)  # noqa: ASYNC251 - one and a half fetch time-outs, in which nothing else runs
    assert await created(leader, "lost") == [ErrorCode.NOT_CONTROLLER]
    assert not leader.is_active and not leader._pending and not leader._waiting
    next_leader = await quorum.leader(other_than=leader.controller_id)
    assert await created(next_leader, "a", "b", "c") == [0, 0, 0]
    quorum.network.heal()
    await until(lambda: knows(leader, "a", "b", "c"))
    while not leader.is_active:
        for one in rest:
            one.resign()
        with contextlib.suppress(TimeoutError):
            await until(lambda: leader.is_active, 0.5)
    assert await created(leader, "d") == [0]
    assert published == sorted(published)
    assert knows(leader, "kept", "a", "b", "c", "d") and not knows(leader, "lost")
    assert await created(leader, "lost") == [0]


async def test_a_leader_whose_disk_is_full_lets_another_lead(quorum: InProcessQuorum) -> None:
    leader = await quorum.leader()
    assert await created(leader, "kept") == [0]
    quorum.disks[leader.controller_id].full = True
    assert await created(leader, "refused") == [ErrorCode.KAFKA_STORAGE_ERROR]
    next_leader = await quorum.leader(other_than=leader.controller_id)
    assert await created(next_leader, "taken") == [0]
    quorum.disks[leader.controller_id].full = False
    await until(lambda: knows(leader, "kept", "taken") and not knows(leader, "refused"))


async def test_a_follower_whose_disk_is_full_comes_back(quorum: InProcessQuorum) -> None:
    leader = await quorum.leader()
    follower = others(quorum, leader)[0]
    quorum.disks[follower.controller_id].full = True
    assert await created(leader, "a") == [0], "the other follower makes the majority"
    await asyncio.sleep(0.2)
    quorum.disks[follower.controller_id].full = False
    await until(lambda: knows(follower, "a"))


async def test_a_leader_whose_sync_fails_leads_no_more(quorum: InProcessQuorum) -> None:
    leader = await quorum.leader()
    assert await created(leader, "kept") == [0]
    quorum.disks[leader.controller_id].fail_next_fsync = 5
    answers = await created(leader, "unsure")
    assert answers in ([ErrorCode.KAFKA_STORAGE_ERROR], [0]), "the followers may have committed it before the sync"
    next_leader = await quorum.leader(other_than=leader.controller_id)
    assert knows(next_leader, "kept") and await created(next_leader, "after") == [0]
    assert not leader.is_active and await created(leader, "no") == [ErrorCode.KAFKA_STORAGE_ERROR]
    if answers == [0]:
        assert knows(next_leader, "unsure")


async def test_power_failures_lose_nothing_that_was_acknowledged(quorum: InProcessQuorum) -> None:
    expected = []
    for round_number in range(6):
        leader = await quorum.leader()
        await until(lambda c=leader: bool(c.image.unfenced_brokers))  # type: ignore[misc]
        name = f"t{round_number}"
        assert await created(leader, name) == [0]
        expected.append(name)
        victim = leader.controller_id if round_number % 2 else others(quorum, leader)[0].controller_id
        await quorum.crash(victim)
        await quorum.leader()
        await quorum.start(victim)
    await until(lambda: all(knows(one, *expected) for one in quorum.network.nodes.values()))


async def test_a_follower_with_a_torn_batch_or_an_empty_log_gets_the_rest_again(quorum: InProcessQuorum) -> None:
    leader = await quorum.leader()
    assert await created(leader, "a") == [0]
    torn, empty = (one.controller_id for one in others(quorum, leader))
    await until(lambda: all(knows(one, "a") for one in quorum.network.nodes.values()))
    await quorum.stop(torn)
    log = quorum.metadata(torn) / "00000000000000000000.log"
    data = log.read_bytes().rstrip(b"\0")
    log.write_bytes(data[:-5])
    await quorum.start(torn)
    await until(lambda: knows(quorum.network.nodes[torn], "a"))
    await quorum.stop(empty)
    (quorum.metadata(empty) / "00000000000000000000.log").write_bytes(b"")
    await quorum.start(empty)
    assert await created(await quorum.leader(), "b") == [0]
    await until(lambda: knows(quorum.network.nodes[empty], "a", "b"))


async def test_a_follower_that_is_far_behind_gets_the_snapshot(tmp_path: Path) -> None:
    quorum = InProcessQuorum(
        tmp_path,
        metadata_log_max_record_bytes_between_snapshots="20000",
        metadata_max_retention_bytes="1",
        internal_metadata_log_segment_bytes="4096",
        controller_quorum_fetch_snapshot_max_bytes="3000",
    )
    await quorum.start()
    try:
        leader = await quorum.leader()
        await until(lambda: leader.image.features.metadata_version > 0)
        await register_broker(leader, BROKER)
        behind = others(quorum, leader)[0].controller_id
        await quorum.stop(behind)
        names = [f"topic-{number}" for number in range(300)]
        for start in range(0, len(names), 20):
            assert set(await created(leader, *names[start : start + 20])) == {0}
        await until(lambda: leader.log.log.log_start_offset > 0)
        await quorum.start(behind)
        late = quorum.network.nodes[behind]
        await until(lambda: knows(late, *names))
        assert late.image.topics_by_id == leader.image.topics_by_id and late.image.brokers == leader.image.brokers
        assert list_snapshots(str(quorum.metadata(behind)))[-1].end_offset > 100
        assert late.log.log.log_start_offset > 0
        await quorum.stop(behind)
        await quorum.start(behind)
        await until(lambda: knows(quorum.network.nodes[behind], *names))
    finally:
        await quorum.stop()


async def test_the_active_controller_fences_silent_brokers_and_shows_that_it_lives(tmp_path: Path) -> None:
    quorum = InProcessQuorum(
        tmp_path,
        broker_session_timeout_ms="300",
        broker_heartbeat_interval_ms="100",
        metadata_max_idle_interval_ms="50",
    )
    await quorum.start()
    try:
        leader = await quorum.leader()
        await until(lambda: leader.image.features.metadata_version > 0)
        epoch = await register_broker(leader, BROKER)
        assert await created(leader, "a") == [0]
        assert leader.image.topics_by_name["a"].partitions[0].leader == BROKER
        for _ in range(8):
            await asyncio.sleep(0.05)
            assert not (await leader.on_broker_heartbeat(heartbeat(leader, epoch, BROKER))).is_fenced
        await until(lambda: leader.image.brokers[BROKER].fenced)
        assert leader.image.topics_by_name["a"].partitions[0].leader == -1
        before = leader.image.offset
        await until(lambda: all(one.image.offset > before + 3 for one in quorum.network.nodes.values()))
        # A new controller holds nobody responsible for heartbeats that it did not see, but then the same holds.
        assert not (await leader.on_broker_heartbeat(heartbeat(leader, epoch, BROKER))).is_fenced
        await quorum.stop(leader.controller_id)
        next_leader = await quorum.leader()
        assert not next_leader.image.brokers[BROKER].fenced
        await until(lambda: next_leader.image.brokers[BROKER].fenced)
    finally:
        await quorum.stop()


async def test_static_voters_lead_and_store_no_voters(tmp_path: Path) -> None:
    """controller.quorum.voters, kraft.version 0: as Apache Kafka had it before KIP-853."""
    quorum = InProcessQuorum(tmp_path, static=True)
    await quorum.start()
    try:
        for round_number in range(3):
            leader = await quorum.leader()
            if round_number == 0:
                await until(lambda c=leader: c.image.features.metadata_version > 0)  # type: ignore[misc]
                await register_broker(leader, BROKER)
            assert await created(leader, f"t{round_number}") == [0]
            assert (leader.kraft_version, leader.voter_ids) == (0, frozenset({1, 2, 3}))
            await leader._snapshotter.write()
            assert leader.log.log_state().voter_sets == ()
            await quorum.crash(leader.controller_id)
            await quorum.leader()
            await quorum.start(leader.controller_id)
        await until(lambda: all(knows(one, "t0", "t1", "t2") for one in quorum.network.nodes.values()))
    finally:
        await quorum.stop()


async def test_a_controller_joins_by_itself(tmp_path: Path) -> None:
    quorum = InProcessQuorum(tmp_path, joining=1, controller_quorum_auto_join_enable="true")
    await quorum.start(1, 2, 3)
    try:
        leader = await quorum.leader()
        await until(lambda: leader.image.features.metadata_version > 0)
        await quorum.start(4)
        everyone = frozenset({1, 2, 3, 4})
        await until(lambda: all(one.voter_ids == everyone for one in quorum.network.nodes.values()))
        leader = await quorum.leader()
        # Now three of four must agree: with two of them gone nothing is decided, with one of them gone it is.
        await register_broker(leader, BROKER)
        gone = [node for node in (1, 2, 3, 4) if node != leader.controller_id][:2]
        await quorum.stop(gone[0])
        assert await created(leader, "a") == [0]
        await quorum.stop(gone[1])
        assert (await created(leader, "b", timeout_ms=200))[0] in (
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.NOT_CONTROLLER,
        )
        await quorum.start(*gone)
        await until(lambda: any(one.is_active for one in quorum.network.nodes.values()))
    finally:
        await quorum.stop()


async def test_a_damaged_snapshot_is_refused_by_name(quorum: InProcessQuorum) -> None:
    leader = await quorum.leader()
    assert await created(leader, "a") == [0]
    follower = others(quorum, leader)[0]
    await until(lambda: knows(follower, "a"))
    await follower._snapshotter.write()
    await quorum.stop(follower.controller_id)
    snapshot = sorted(quorum.metadata(follower.controller_id).glob("*.checkpoint"))[-1]
    data = bytearray(snapshot.read_bytes())
    data[len(data) // 2] ^= 0xFF
    os.chmod(snapshot, 0o600)
    snapshot.write_bytes(data)
    with pytest.raises(MetadataError, match=f"{snapshot.name} is damaged"):
        await quorum.start(follower.controller_id)


async def test_a_node_with_an_old_copy_of_its_directory_catches_up(quorum: InProcessQuorum, tmp_path: Path) -> None:
    """Restored from a backup: older log, older quorum-state. It has forgotten votes, but no majority rests on it."""
    leader = await quorum.leader()
    assert await created(leader, "early") == [0]
    victim = others(quorum, leader)[0].controller_id
    await until(lambda: knows(quorum.network.nodes[victim], "early"))
    await quorum.stop(victim)
    shutil.copytree(quorum.data(victim), tmp_path / "backup")
    await quorum.start(victim)
    assert await created(await quorum.leader(), "late") == [0]
    await until(lambda: knows(quorum.network.nodes[victim], "late"))
    await quorum.stop(victim)
    shutil.rmtree(quorum.data(victim))
    shutil.copytree(tmp_path / "backup", quorum.data(victim))
    await quorum.start(victim)
    await until(lambda: knows(quorum.network.nodes[victim], "early", "late"))


async def test_requests_of_another_cluster_or_about_another_partition_never_reach_the_core(
    quorum: InProcessQuorum, caplog: pytest.LogCaptureFixture
) -> None:
    leader = await quorum.leader()
    epoch = leader.leader_epoch

    def vote(cluster_id: str | None, name: str = "__cluster_metadata") -> VoteRequest:
        data = PartitionData(partition_index=0, replica_epoch=epoch + 50, replica_id=2, last_offset=1 << 40)
        return VoteRequest(cluster_id=cluster_id, voter_id=1, topics=[TopicData(topic_name=name, partitions=[data])])

    with caplog.at_level(logging.WARNING):
        other = await leader.serve_raft(vote("J4kqKQYcRMqzcxdRl5K5Ug"), "CONTROLLER")
        assert other.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID  # type: ignore[attr-defined]
        wrong = await leader.serve_raft(vote(None, "other"), "CONTROLLER")
        assert wrong.error_code == ErrorCode.INVALID_REQUEST  # type: ignore[attr-defined]
    fetch = FetchRequest(
        cluster_id="J4kqKQYcRMqzcxdRl5K5Ug",
        replica_state=ReplicaState(replica_id=9),
        topics=[
            FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[FetchPartition(partition=0, current_leader_epoch=epoch)])
        ],
    )
    assert (await leader.serve_raft(fetch, "CONTROLLER")).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID  # type: ignore[attr-defined]
    fetch.cluster_id, fetch.topics[0].topic_id = None, Uuid.random()
    assert (await leader.serve_raft(fetch, "CONTROLLER")).error_code == ErrorCode.INVALID_REQUEST  # type: ignore[attr-defined]
    assert leader.leader_epoch == epoch and leader.is_active
