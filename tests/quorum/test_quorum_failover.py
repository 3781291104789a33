"""Three controllers and three brokers as processes: the active controller dies, again and again."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

import pytest
from support.change_stream import ChangeStream, settings_known_to, topics_known_to
from support.processes import wait_until
from support.quorum_cluster import QuorumCluster, separate

BROKERS = (1, 2, 3)
KILLS = int(os.environ.get("BARNABAS_KILLS", "4"))
PAUSE_S = float(os.environ.get("BARNABAS_PAUSE_S", "5"))
"""Longer than every time-out of the quorum (the fetch time-out is 2 s), shorter than a test run may take."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorumCluster]:
    made = QuorumCluster(tmp_path_factory.mktemp("quorum"), separate())
    try:
        made.start()
        yield made
    finally:
        made.close()


def check_acknowledged(cluster: QuorumCluster, stream: ChangeStream) -> None:
    """Everything that was acknowledged is known to every broker, with the value it was given last."""
    for broker in BROKERS:
        port = cluster.nodes[broker].port
        wait_until(
            lambda port=port: set(stream.created) <= topics_known_to(port),  # type: ignore[misc]
            10,
            f"all acknowledged topics at broker {broker}",
        )
        with contextlib.suppress(TimeoutError):  # the last setting may reach it after the last topic
            wait_until(
                lambda port=port: settings_known_to(port, list(stream.altered)) == stream.altered,  # type: ignore[misc]
                10,
                "all acknowledged settings",
            )
        assert settings_known_to(port, list(stream.altered)) == stream.altered


def test_acknowledged_changes_survive_the_death_of_their_controller(cluster: QuorumCluster) -> None:
    stream = ChangeStream([cluster.nodes[broker].port for broker in BROKERS])
    stream.start()
    times = []
    for _ in range(KILLS):
        before = len(stream.altered)
        wait_until(lambda: len(stream.altered) > before + 3, 20, "changes between two deaths")  # noqa: B023
        leader = cluster.await_leader()
        cluster.nodes[leader].kill()
        died = time.monotonic()
        done = len(stream.altered)
        # "Acts" is more than "is elected": a change was decided and committed.
        wait_until(lambda: len(stream.altered) > done, 20, "a change by the next controller")  # noqa: B023
        times.append(time.monotonic() - died)
        assert cluster.await_leader() != leader
        cluster.start([leader])
    stream.stop()
    print(
        f"\n{KILLS} controllers killed, {len(stream.created)} topics created, {len(stream.altered)} altered; until "
        f"the next controller acted: {', '.join(f'{one:.2f}' for one in times)} s; unknown: {stream.unknown}"
    )
    assert len(stream.created) > 4 * KILLS
    assert max(times) < 8
    check_acknowledged(cluster, stream)


def test_a_controller_that_was_stopped_and_goes_on_harms_nothing(cluster: QuorumCluster) -> None:
    """SIGSTOP: it does not know that it was deposed, and goes on where it was when it wakes up."""
    stream = ChangeStream([cluster.nodes[broker].port for broker in BROKERS], prefix="p")
    stream.start()
    wait_until(lambda: len(stream.altered) > 3, 20, "first changes")
    leader = cluster.await_leader()
    process = cluster.nodes[leader].process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    begin = time.monotonic()
    try:
        others = [node for node in (101, 102, 103) if node != leader]
        wait_until(lambda: cluster.leader(others) in others, 20, "another leader")
        done = len(stream.altered)
        wait_until(lambda: len(stream.altered) > done + 3, 20, "changes by the next controller")
        time.sleep(max(PAUSE_S - (time.monotonic() - begin), 0))
    finally:
        os.kill(process.pid, signal.SIGCONT)
    done = len(stream.altered)
    wait_until(lambda: len(stream.altered) > done + 5, 20, "changes after it woke up")
    wait_until(lambda: _is_caught_up(cluster, leader), 10, "the old leader follows the new one")
    stream.stop()
    check_acknowledged(cluster, stream)
    assert cluster.nodes[leader].process is process and process.poll() is None


def _is_caught_up(cluster: QuorumCluster, node_id: int) -> bool:
    quorum = cluster.quorum()
    if quorum is None:
        return False
    states = {voter.replica_id: voter for voter in quorum.current_voters}
    return quorum.leader_id != node_id and states[node_id].log_end_offset >= quorum.high_watermark
