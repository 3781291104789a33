"""Replication broken on purpose, one rule at a time: what the simulation of replication has to notice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from support import replication_model
from support.replication_replica import Replica
from support.replication_sim import FAULTS_MS

from broker.handlers.data import fetch
from broker.partition import Partition
from broker.replication import leader as leader_module
from broker.replication.follower import FollowerPhase, FollowerState, LogPosition, Step
from broker.replication.leader import LeaderState
from controller import alter_partition, partition_change, replica_directories
from controller.heartbeats import BrokerHeartbeats
from controller.leadership import Elections
from protocol.errors import ErrorCode
from storage.producer_append import ProducerAppendInfo
from storage.producer_state import ProducerStateManager


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


def believing_one_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop counts as clean if it was in any log directory, though another one had failed."""

    def careless(marks: Any) -> int:
        return max((mark[1] for mark in marks if mark is not None and mark[0]), default=-1)

    monkeypatch.setattr(replication_model, "epoch_of_clean_stop", careless)


def believing_a_follower_that_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer takes the end of a follower's log for the end of the leader's epoch."""
    monkeypatch.setattr(
        fetch, "_diverging_for_consumer", lambda partition, target: fetch._diverging_epoch(partition.log, target)
    )


def telling_an_early_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before KIP-207: a new leader tells its high watermark, though the last one had told more."""
    monkeypatch.setattr(Partition, "epoch_start_offset", property(lambda self: 0))


def showing_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower shows consumers what it has, committed or not."""
    read = Replica._read

    def careless(self: Replica, asked: Any, end: int, diverging: Any) -> Any:
        return read(self, asked, self.log.log_end_offset, diverging)

    monkeypatch.setattr(Replica, "_read", careless)


def forgetting_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower does not note who wrote what it copies, so it will take a repetition for something new."""
    monkeypatch.setattr(ProducerAppendInfo, "_check_sequence", lambda self, epoch, sequence, offset: None)
    monkeypatch.setattr(ProducerStateManager, "find_duplicate", lambda self, header: None)


def counting_the_replicas_of_partition_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apache Kafka 4.3.1's rule for how many replicas of any partition have to be in sync."""
    least = Elections._min_isr
    monkeypatch.setattr(Elections, "_min_isr", lambda self, topic, partition: least(self, topic, topic.partitions[0]))


def committing_in_one_epoch_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is elected for the second time commits nothing any more."""
    become, commit = Partition._become_leader, Partition._maybe_commit

    def counted(self: Partition, old: Any, image: Any) -> None:
        if old is None or old.leader_epoch != image.leader_epoch:
            elections[self.log] += 1
        become(self, old, image)

    def stuck(self: Partition) -> None:
        if elections[self.log] < 2:
            commit(self)

    elections: Counter[Any] = Counter()
    monkeypatch.setattr(Partition, "_become_leader", counted)
    monkeypatch.setattr(Partition, "_maybe_commit", stuck)


def committing_nothing_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """No leader commits anything once the faults are over."""
    committed = LeaderState.committed_offset

    def stuck(self: LeaderState, now_ms: int, *arguments: Any) -> int:
        return -1 if now_ms >= FAULTS_MS else committed(self, now_ms, *arguments)

    monkeypatch.setattr(LeaderState, "committed_offset", stuck)


def asking_for_offsets_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower outside the leader's log learns where that begins and ends, and does not fetch again."""
    told = FollowerState.on_leader_offsets

    def careless(self: FollowerState, *arguments: Any) -> Step:
        step = told(self, *arguments)
        self.phase = FollowerPhase.ASKING_OFFSETS
        return step

    monkeypatch.setattr(FollowerState, "on_leader_offsets", careless)


def giving_up_on_an_unknown_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower that hears of its leader before that one does waits for other metadata, which never come."""
    on_error = FollowerState.on_error

    def careless(self: FollowerState, now_ms: int, error: ErrorCode) -> Step:
        if error is ErrorCode.UNKNOWN_LEADER_EPOCH:
            self.fail()
            return None
        return on_error(self, now_ms, error)

    monkeypatch.setattr(FollowerState, "on_error", careless)


def asking_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of the in-sync set that nobody answers is not asked for again: a controller that failed over has lost
    it, and the leader waits for ever, since it asks for nothing else meanwhile."""
    monkeypatch.setattr(replication_model.Broker, "_retry_isr_changes", lambda self, batch: None)


def forgetting_who_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new controller does not know of sessions, so those who are dead by then are never fenced."""

    def careless(self: BrokerHeartbeats, image: Any, now_ms: int) -> None:
        activate(self, image, now_ms)
        for known in self._brokers.values():
            known.contact_ms = None

    activate = BrokerHeartbeats.activate
    monkeypatch.setattr(BrokerHeartbeats, "activate", careless)


def electing_only_at_the_fencing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition without a leader gets none when a broker comes back."""
    monkeypatch.setattr(Elections, "on_unfenced", lambda self: [])


RARE = {counting_the_replicas_of_partition_0: 250}
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
    believing_one_directory,
    believing_a_follower_that_is_behind,
    telling_an_early_end,
    showing_everything,
    forgetting_producers,
    counting_the_replicas_of_partition_0,
    # These break progress.
    committing_in_one_epoch_only,
    committing_nothing_after_a_while,
    asking_for_offsets_for_ever,
    giving_up_on_an_unknown_leader,
    asking_once,
    forgetting_who_lives,
    electing_only_at_the_fencing,
]
