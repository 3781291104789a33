"""Seeded histories of a replicated partition: what was acknowledged stays, what was read never changes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.replication_sim import ReplicationSim

from broker.replication import leader as leader_module
from broker.replication.follower import FollowerState, LogPosition, Step
from broker.replication.leader import Follower, LeaderState
from controller import alter_partition, partition_change, replica_directories
from controller.leadership import Elections
from protocol.errors import ErrorCode

SEEDS = int(os.environ.get("BARNABAS_REPLICATION_SEEDS", "2000"))
FIRST_SEED = int(os.environ.get("BARNABAS_REPLICATION_FIRST_SEED", "0"))
"""Of the histories that must hold; mutants are looked for from 0 on."""
MOST_SEEDS = 2_000
"""Until a mutant is found; most are in the first ten."""


SEEN = (
    "acknowledged",
    "crashes",
    "disks replaced",
    "diverging",
    "elections",
    "fenced",
    "isolations: both ways",
    "isolations: hears nothing",
    "isolations: sends nothing",
    "losses of power",
    "pauses",
    "proper stops",
    "reassignments",
    "records lost on a disk",
    "truncations",
)


def run(seed: int, directory: Path, *, unclean: bool = False) -> ReplicationSim:
    sim = ReplicationSim(seed, directory, unclean=unclean)
    try:
        sim.run()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, at {sim.now} ms: {error}") from error
    return sim


def test_no_acknowledged_record_is_lost(tmp_path: Path) -> None:
    total: Counter[str] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        total += run(seed, tmp_path).counts
    print(f"{SEEDS} histories from seed {FIRST_SEED} on: {dict(sorted(total.items()))}")
    for what in SEEN:
        assert total[what] >= SEEDS // 10, (what, total)
    assert total["left to a person"] <= total["disks replaced"] // 10, total


def test_after_unclean_elections_all_replicas_are_equal_again(tmp_path: Path) -> None:
    """Records may be lost then, that is what the setting says; but nobody keeps what the leader has not."""
    total: Counter[str] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS // 10):
        total += run(seed, tmp_path, unclean=True).counts
    assert total["losses of power"] >= SEEDS // 20, total


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


def expanding_when_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new member counts when the answer is here, though the controller may have made it one long before."""
    expand = LeaderState.maybe_expand

    def careless(self: LeaderState, *arguments: Any) -> leader_module.IsrChange | None:
        change = expand(self, *arguments)
        self.maximal_isr = self.isr
        return change

    monkeypatch.setattr(LeaderState, "maybe_expand", careless)
    committed = LeaderState.committed_offset
    monkeypatch.setattr(
        LeaderState, "committed_offset", lambda self, now, end, eligible, least: committed(self, now, end, {}, least)
    )


def committing_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below min.insync.replicas the high watermark moves on, while those that left are still eligible to lead."""
    committed = LeaderState.committed_offset
    monkeypatch.setattr(
        LeaderState, "committed_offset", lambda self, now, end, eligible, least: committed(self, now, end, eligible, 0)
    )


def trusting_who_crashed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever was in sync before a crash is so afterwards."""
    monkeypatch.setattr(Elections, "on_unclean_shutdown", lambda self, broker_id: [])


def eligible_after_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves the ISR, but stays among those that may lead."""
    monkeypatch.setattr(Elections, "on_unclean_shutdown", Elections.on_inactive)


def eligible_after_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apache Kafka 4.3.1's rule: a reassignment leaves those eligible that it takes the partition from."""

    def careless(partition: Any, replicas: Any, isr: Any, rules: Any, lost: Any) -> tuple[int, ...]:
        if not rules.with_elr or len(isr) >= rules.min_isr:
            return ()
        return tuple(sorted({*partition.elr, *partition.isr} - {*isr, *lost}))

    monkeypatch.setattr(partition_change, "_eligible", careless)


def electing_anyone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Better a leader that has not everything than none."""
    monkeypatch.setattr(Elections, "usual_election", lambda self, topic: partition_change.Election.UNCLEAN)


def without_partition_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller takes an in-sync set from a leader that does not know of the last change."""
    check = alter_partition._check_epochs

    def careless(partition: Any, part: Any, broker_id: int) -> tuple[ErrorCode | None, str]:
        error, reason = check(partition, part, broker_id)
        return (None, "") if error is ErrorCode.INVALID_UPDATE_VERSION else (error, reason)

    monkeypatch.setattr(alter_partition, "_check_epochs", careless)


def taking_back_an_empty_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """How Kafka does it: the last known leader is taken back, whatever became of its disk."""
    monkeypatch.setattr(replica_directories, "_begins_anew", lambda broker, partition, directory: False)


RARE = {without_broker_epochs: 800}
"""A seed to begin with: this takes a coincidence, which the first hundreds do not have."""
MUTANTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    without_maximal_isr,
    without_epoch_start,
    without_broker_epochs,
    without_truncation,
    without_waiting,
    without_partition_epochs,
    truncating_to_high_watermark,
    expanding_when_confirmed,
    committing_alone,
    trusting_who_crashed,
    eligible_after_a_crash,
    eligible_after_removal,
    electing_anyone,
    taking_back_an_empty_disk,
]


@pytest.mark.parametrize("break_it", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_mutants_are_found(break_it: Callable[[pytest.MonkeyPatch], None], tmp_path: Path) -> None:
    """The simulation is worth something only if it finds replication that is broken on purpose."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        break_it(monkeypatch)
        first = RARE.get(break_it, 0)
        for seed in range(first, first + MOST_SEEDS):
            try:
                run(seed, tmp_path)
            except (AssertionError, IndexError) as error:
                print(f"{break_it.__name__}: {error}")
                return
    pytest.fail(f"{break_it.__name__} was not found")


def test_followers_are_compared_by_value() -> None:
    assert Follower(1) == Follower(1)
