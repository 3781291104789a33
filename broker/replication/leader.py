"""The leader's side of replication: where each follower is, who is in sync, and what is committed.

Pure: the time, the follower's fetches and the controller's answers come in; a high watermark and wanted changes of the
in-sync set come out. One `LeaderState` lives from one leader epoch to the next.

The in-sync set (ISR) belongs to the controller. While a change to it is under way nobody here knows whether it was
made, so the leader counts with the larger of both possibilities, the *maximal* ISR: a record counts as committed only
when every member of either set has it. That is why a shrink takes effect when it is confirmed, and an expansion when
it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

UNKNOWN_OFFSET: Final = -1
NEVER: Final = -(1 << 62)
NO_BROKER_EPOCH: Final = -1
"""What a follower that does not speak Fetch 15 sends: its incarnations cannot be told apart (KIP-903)."""


class UnknownReplica(Exception):
    """A fetch of a broker that is not one of the replicas, as far as this leader knows."""


class StaleBrokerEpoch(Exception):
    """A fetch of an earlier incarnation of the broker than one that was heard of."""


class IsrMember(NamedTuple):
    broker_id: int
    broker_epoch: int


class IsrChange(NamedTuple):
    """What the controller is asked for. It counts only in this leader epoch and this partition epoch."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[IsrMember, ...]

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return tuple(member.broker_id for member in self.isr)


class IsrResult(NamedTuple):
    """The partition as the controller made it."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


@dataclass(slots=True)
class Follower:
    """One follower as its fetches show it: it has everything below the offset it asks for.

    `last_caught_up_ms` is when it was last level with the log end: now, if it asks for the log end; else the time of
    its previous fetch, if it now has all that was there then. A follower that always asks a moment too early counts as
    caught up that way, however busy the log is.
    """

    broker_id: int
    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    last_caught_up_ms: int = NEVER
    broker_epoch: int | None = None
    _last_fetch_ms: int = NEVER
    _last_fetch_leader_end: int = UNKNOWN_OFFSET

    def on_fetch(
        self, now_ms: int, fetch_offset: int, log_start_offset: int, leader_end_offset: int, broker_epoch: int
    ) -> None:
        if broker_epoch != NO_BROKER_EPOCH and self.broker_epoch is not None and broker_epoch < self.broker_epoch:
            raise StaleBrokerEpoch(
                f"broker {self.broker_id} fetches with epoch {broker_epoch}, but {self.broker_epoch} was seen"
            )
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif fetch_offset >= self._last_fetch_leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self._last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self._last_fetch_ms = now_ms
        self._last_fetch_leader_end = max(leader_end_offset, self._last_fetch_leader_end)

    def on_idle_fetch(self, now_ms: int, fetch_offset: int, log_start_offset: int, broker_epoch: int) -> bool:
        """`on_fetch` for one that asks for the log end and says what it said before: only the time is new. False, and
        nothing is done, if it says something else."""
        if (
            fetch_offset != self.log_end_offset
            or log_start_offset != self.log_start_offset
            or broker_epoch != self.broker_epoch
        ):
            return False
        self.last_caught_up_ms = self._last_fetch_ms = now_ms
        return True

    def on_new_leader_epoch(self, now_ms: int, leader_end_offset: int, in_sync: bool) -> None:
        """This broker leads on in the next epoch: the follower stays where it was, its time to catch up starts anew.

        A follower outside the ISR must prove itself: it is as if it had never been level.
        """
        self.last_caught_up_ms = now_ms if in_sync else NEVER
        self._last_fetch_ms = now_ms if in_sync else NEVER
        self._last_fetch_leader_end = leader_end_offset

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_max_ms: int) -> bool:
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_max_ms


class LeaderState:
    """A partition led by this broker, from the election on. Owned by its `Partition`.

    Invariant: `isr` is what the controller last confirmed; `maximal_isr` contains it and is what the high watermark is
    computed from.
    """

    __slots__ = (
        "_followers",
        "_node_id",
        "_pending",
        "epoch_start_offset",
        "isr",
        "lag_max_ms",
        "leader_epoch",
        "maximal_isr",
        "partition_epoch",
    )

    def __init__(self, node_id: int, lag_max_ms: int) -> None:
        self._node_id = node_id
        self.lag_max_ms = lag_max_ms
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.epoch_start_offset = 0
        """The log end when the epoch began. A follower below it may still hold records that no leader has."""
        self.isr: frozenset[int] = frozenset()
        self.maximal_isr: frozenset[int] = frozenset()
        self._pending: IsrChange | None = None
        self._followers: dict[int, Follower] = {}

    @property
    def pending(self) -> IsrChange | None:
        """The change that the controller was asked for and has not answered."""
        return self._pending

    @property
    def replica_count(self) -> int:
        return len(self._followers) + 1

    @property
    def followers(self) -> Mapping[int, Follower]:
        return self._followers

    # --- what the controller decided

    def on_metadata(
        self,
        now_ms: int,
        *,
        replicas: Iterable[int],
        isr: Iterable[int],
        leader_epoch: int,
        partition_epoch: int,
        log_end_offset: int,
    ) -> bool:
        """The partition in the metadata. What is older than an answer of the controller is left alone; False then."""
        if leader_epoch == self.leader_epoch and partition_epoch < self.partition_epoch:
            return False
        is_new_epoch = leader_epoch != self.leader_epoch
        wanted = [replica for replica in replicas if replica != self._node_id]
        if leader_epoch > self.leader_epoch + 1:
            self._forget_followers()
        self._followers = {replica: self._followers.get(replica) or Follower(replica) for replica in wanted}
        if is_new_epoch or partition_epoch != self.partition_epoch:
            self._commit(frozenset(isr), partition_epoch)
        if is_new_epoch:
            self.leader_epoch = leader_epoch
            self.epoch_start_offset = log_end_offset
            for follower in self._followers.values():
                follower.on_new_leader_epoch(now_ms, log_end_offset, follower.broker_id in self.isr)
        return True

    def _forget_followers(self) -> None:
        """Others may have led since, unnoticed where changes of the metadata came as one, and followers have cut off
        what was theirs: it may not be called committed any more. Here Kafka 4.3.1 differs: it goes on counting with it.
        """
        self._followers = {}

    def on_result(self, asked: IsrChange, result: IsrResult) -> bool:
        """The controller's answer to a change. False if it is about another epoch than the present one."""
        if result.leader_epoch != self.leader_epoch or result.partition_epoch < self.partition_epoch:
            return False
        self._commit(frozenset(result.isr), result.partition_epoch)
        return True

    def on_not_attempted(self, asked: IsrChange) -> None:
        """The controller says that nothing was changed, and why a repetition is useless: back to what was confirmed."""
        if self._pending is asked:
            self._commit(self.isr, self.partition_epoch)

    def _commit(self, isr: frozenset[int], partition_epoch: int) -> None:
        self.isr = self.maximal_isr = isr
        self.partition_epoch = partition_epoch
        self._pending = None

    # --- what followers do

    def on_fetch(
        self,
        now_ms: int,
        replica_id: int,
        *,
        broker_epoch: int,
        fetch_offset: int,
        log_start_offset: int,
        log_end_offset: int,
    ) -> bool:
        """A fetch that was read without error. True if the follower has moved, so that more may be committed."""
        follower = self.follower_or_raise(replica_id)
        before = follower.log_end_offset
        follower.on_fetch(now_ms, fetch_offset, log_start_offset, log_end_offset, broker_epoch)
        return follower.log_end_offset != before

    def on_idle_fetch(
        self, now_ms: int, replica_id: int, broker_epoch: int, fetch_offset: int, log_start_offset: int
    ) -> bool:
        """A fetch at the log end, which has not moved since the one before. A session of many partitions has mostly
        those. False, and nothing is done, if more follows from it than that the follower is alive and level."""
        follower = self._followers.get(replica_id)
        return (
            follower is not None
            and replica_id in self.isr
            and follower.on_idle_fetch(now_ms, fetch_offset, log_start_offset, broker_epoch)
        )

    def follower_or_raise(self, replica_id: int) -> Follower:
        follower = self._followers.get(replica_id)
        if follower is None:
            raise UnknownReplica(f"broker {replica_id} is no replica in partition epoch {self.partition_epoch}")
        return follower

    # --- what follows from it

    def committed_offset(
        self, now_ms: int, log_end_offset: int, eligible: Mapping[int, int], min_insync_replicas: int
    ) -> int:
        """The offset that every member of the maximal ISR has reached; the high watermark moves there if it is higher.

        Nothing is committed while the ISR is smaller than the topic demands: the members that are missing would be
        eligible to lead without it (KIP-966). A follower that is level and may join the ISR is waited for, or a busy
        leader would always be a step ahead of it.
        """
        if len(self.isr) < self.effective_min_isr(min_insync_replicas):
            return UNKNOWN_OFFSET
        lowest = log_end_offset
        for follower in self._followers.values():
            if follower.log_end_offset < lowest and (
                follower.broker_id in self.maximal_isr
                or (
                    follower.is_caught_up(log_end_offset, now_ms, self.lag_max_ms)
                    and self._may_join(follower, eligible)
                )
            ):
                lowest = follower.log_end_offset
        return lowest

    def effective_min_isr(self, min_insync_replicas: int) -> int:
        """A topic cannot demand more replicas than it has."""
        return min(min_insync_replicas, self.replica_count)

    def maybe_expand(
        self, replica_id: int, high_watermark: int, eligible: Mapping[int, int], own_epoch: int
    ) -> IsrChange | None:
        """To be sent, if the follower has caught up: to the high watermark, and to where this epoch began."""
        follower = self._followers.get(replica_id)
        if (
            follower is None
            or self._pending is not None
            or replica_id in self.isr
            or follower.log_end_offset < max(high_watermark, self.epoch_start_offset)
            or not self._may_join(follower, eligible)
        ):
            return None
        self.maximal_isr = self.isr | {replica_id}
        return self._ask(self.maximal_isr, own_epoch)

    def maybe_shrink(self, now_ms: int, log_end_offset: int, own_epoch: int) -> IsrChange | None:
        """To be sent, if members of the ISR have not been level for too long. Until confirmed they still count."""
        if self._pending is not None:
            return None
        lagging = {
            follower.broker_id
            for follower in self._followers.values()
            if follower.broker_id in self.isr and not follower.is_caught_up(log_end_offset, now_ms, self.lag_max_ms)
        }
        # A member that is no replica at all cannot be: the controller removes it from both at once.
        return self._ask(self.isr - lagging, own_epoch) if lagging else None

    def _ask(self, isr: frozenset[int], own_epoch: int) -> IsrChange:
        members = []
        for broker_id in sorted(isr):
            follower = self._followers.get(broker_id)
            if broker_id == self._node_id:
                epoch = own_epoch
            else:
                epoch = NO_BROKER_EPOCH if follower is None or follower.broker_epoch is None else follower.broker_epoch
            members.append(IsrMember(broker_id, epoch))
        self._pending = IsrChange(self.leader_epoch, self.partition_epoch, tuple(members))
        return self._pending

    @staticmethod
    def _may_join(follower: Follower, eligible: Mapping[int, int]) -> bool:
        """`eligible`: the brokers that are neither fenced nor leaving, with their epochs. The one that fetched must be
        the one that is registered: an incarnation that died may have had more than the one that lives (KIP-903)."""
        registered = eligible.get(follower.broker_id)
        fetched = follower.broker_epoch
        return registered is not None and fetched is not None and fetched in (NO_BROKER_EPOCH, registered)
