"""Seeded histories of a replicated partition: what was acknowledged stays, what was read never changes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from support.replication_sim import ReplicationSim

from broker.replication import leader as leader_module
from broker.replication.follower import FollowerState, LogPosition, Step
from broker.replication.leader import Follower, LeaderState
from controller import replica_directories

SEEDS = int(os.environ.get("BARNABAS_REPLICATION_SEEDS", "400"))


def run(seed: int, directory: Path) -> ReplicationSim:
    sim = ReplicationSim(seed, directory)
    try:
        sim.run()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, at {sim.now} ms: {error}") from error
    return sim


def test_no_acknowledged_record_is_lost(tmp_path: Path) -> None:
    total: Counter[str] = Counter()
    for seed in range(SEEDS):
        total += run(seed, tmp_path).counts
    print(f"{SEEDS} histories: {dict(sorted(total.items()))}")
    wanted = ("acknowledged", "elections", "crashes", "pauses", "isolations", "fenced", "truncations", "diverging")
    for what in (*wanted, "disks replaced"):
        assert total[what] >= SEEDS // 10, (what, total)
    assert total["left to a person"] <= total["disks replaced"] // 10, total


def without_maximal_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shrink counts from the moment it is asked for."""
    ask = LeaderState._ask

    def hasty(self: LeaderState, isr: frozenset[int], own_epoch: int) -> leader_module.IsrChange:
        change = ask(self, isr, own_epoch)
        self.maximal_isr = isr
        self.isr = isr
        return change

    monkeypatch.setattr(LeaderState, "_ask", hasty)


def without_epoch_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower counts as caught up before it has what the leader had when its epoch began, or ever."""
    expand = LeaderState.maybe_expand

    def hasty(self: LeaderState, replica: int, high_watermark: int, *rest: object) -> object:
        self._followers[replica].log_end_offset, real = 1 << 40, self._followers[replica].log_end_offset
        try:
            return expand(self, replica, high_watermark, *rest)  # type: ignore[arg-type]
        finally:
            self._followers[replica].log_end_offset = real

    monkeypatch.setattr(LeaderState, "maybe_expand", hasty)


def without_broker_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that restarted is taken for the process that had caught up."""
    monkeypatch.setattr(LeaderState, "_may_join", staticmethod(lambda follower, eligible: True))
    monkeypatch.setattr(leader_module, "IsrMember", lambda broker_id, epoch: _Unchecked(broker_id))


class _Unchecked(tuple):  # type: ignore[type-arg]
    broker_id: int
    broker_epoch = -1

    def __new__(cls, broker_id: int) -> _Unchecked:
        made = super().__new__(cls, (broker_id, -1))
        made.broker_id = broker_id
        return made


def without_truncation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower goes on where its log ends, whatever epoch that was written in."""

    def careless(self: FollowerState, asked: int, log: LogPosition, epoch: int, end_offset: int) -> Step:
        return None

    monkeypatch.setattr(FollowerState, "on_diverging", careless)
    position = FollowerState.position
    monkeypatch.setattr(
        FollowerState, "position", lambda self, log: position(self, log)._replace(last_fetched_epoch=-1)
    )


def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The high watermark does not wait for everyone in the ISR."""
    monkeypatch.setattr(LeaderState, "committed_offset", lambda self, now, end, eligible, min_isr: end)


def truncating_to_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    """How Kafka did it before KIP-101: a follower cuts to its own high watermark, which may be old."""
    start = FollowerState.start

    def careless(self: FollowerState, log: LogPosition) -> Step:
        return start(self, log._replace(latest_epoch=-1))

    monkeypatch.setattr(FollowerState, "start", careless)


def taking_back_an_empty_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """How Kafka does it: the last known leader is taken back, whatever became of its disk."""
    monkeypatch.setattr(replica_directories, "_begins_anew", lambda broker, partition, directory: False)


MUTANTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    without_maximal_isr,
    without_epoch_start,
    without_truncation,
    without_waiting,
    truncating_to_high_watermark,
    taking_back_an_empty_disk,
]


@pytest.mark.parametrize("break_it", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_mutants_are_found(break_it: Callable[[pytest.MonkeyPatch], None], tmp_path: Path) -> None:
    """The simulation is worth something only if it finds replication that is broken on purpose."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        break_it(monkeypatch)
        for seed in range(1000):
            try:
                run(seed, tmp_path)
            except (AssertionError, IndexError):
                return
    pytest.fail(f"{break_it.__name__} was not found")


def test_followers_are_compared_by_value() -> None:
    assert Follower(1) == Follower(1)
