"""A broker of the replication simulation: the product's cores between a list for a log and a heap for a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from support.partitions import only_partition

from broker.replication.follower import Append, FollowerState, LogPosition, Truncate, TruncateFully
from broker.replication.leader import IsrChange, IsrResult, LeaderState, StaleBrokerEpoch, UnknownReplica
from controller.image import MetadataImage
from protocol.errors import ErrorCode
from storage.errors import OffsetOutOfRange

if TYPE_CHECKING:
    from support.replication_sim import ReplicationSim

LAG_MAX_MS = 400
FETCH_WAIT_MS = 100
BACKOFF_MS = 50
RECORDS_PER_FETCH = 4


class ModelLog:
    """What survives a crash of the process: records with their epochs, and a high watermark from some time ago. A loss
    of power takes the records that were not synced, too."""

    def __init__(self) -> None:
        self.records: list[tuple[int, str]] = []
        self.start_offset = 0
        self.high_watermark = 0
        self.checkpointed = 0
        self.synced = 0
        self.epochs: list[tuple[int, int]] = []  # (epoch, start offset), both ascending

    @property
    def end_offset(self) -> int:
        return len(self.records)

    def assign(self, epoch: int, start: int) -> None:
        if self.epochs and self.epochs[-1][0] == epoch:
            return
        self.epochs = [e for e in self.epochs if e[0] < epoch and e[1] < start]
        self.epochs.append((epoch, start))

    def append(self, epoch: int, value: str) -> None:
        self.assign(epoch, self.end_offset)
        self.records.append((epoch, value))

    def truncate(self, offset: int) -> None:
        if offset < len(self.records):
            del self.records[offset:]
            self.high_watermark = min(self.high_watermark, offset)
            self.checkpointed = min(self.checkpointed, offset)
            self.synced = min(self.synced, offset)
        self.epochs = [e for e in self.epochs if e[1] < offset]

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        if epoch < 0 or not self.epochs:
            return -1, -1
        if self.epochs[-1][0] == epoch:
            return epoch, self.end_offset
        higher = [e for e in self.epochs if e[0] > epoch]
        if not higher:
            return -1, -1
        lower = [e for e in self.epochs if e[0] <= epoch]
        return (lower[-1][0] if lower else epoch), higher[0][1]

    def position(self) -> LogPosition:
        latest = self.epochs[-1][0] if self.epochs else -1
        return LogPosition(self.start_offset, self.high_watermark, self.end_offset, latest, self.end_offset_for_epoch)


class Broker:
    """One process after another under one id; `log` is the disk they share."""

    def __init__(self, sim: ReplicationSim, broker_id: int) -> None:
        self.sim = sim
        self.id = broker_id
        self.log = ModelLog()
        self.alive = True
        self.paused = False
        self.epoch = 100 + broker_id
        self.image: MetadataImage | None = None
        self.leadership: LeaderState | None = None
        self.following: FollowerState | None = None
        self.life = 0  # deliveries to an earlier process go nowhere
        self.unacknowledged: list[tuple[int, str]] = []
        self.waiting_fetch: list[tuple[int, Callable[[], None]]] = []
        self.has_lost = False
        """Records are gone with the power, and the controller does not know yet."""
        self.is_behind = False
        """... it does know, but the records are not back yet."""
        self.stopped_cleanly = False

    @property
    def eligible(self) -> dict[int, int]:
        assert self.image is not None
        return {b.id: b.epoch for b in self.image.brokers.values() if b.is_active}

    # metadata

    def on_image(self, image: MetadataImage) -> None:
        if self.image is not None and image.offset <= self.image.offset:
            return
        self.image = image
        partition = only_partition(image)
        if self.id not in partition.replicas:
            self.forget()
            self.log = ModelLog()
            return
        if partition.leader == self.id:
            self.following = None
            if self.leadership is None:
                self.leadership = LeaderState(self.id, LAG_MAX_MS)
            if self.leadership.leader_epoch != partition.leader_epoch:
                self.log.assign(partition.leader_epoch, self.log.end_offset)
            self.leadership.on_metadata(
                self.sim.now,
                replicas=partition.replicas,
                isr=partition.isr,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                log_end_offset=self.log.end_offset,
            )
            self.commit()
            return
        self.leadership = None
        self.unacknowledged.clear()
        self.waiting_fetch.clear()
        wanted = (partition.leader, partition.leader_epoch)
        if partition.leader < 0:
            self.following = None
        elif self.following is None or (self.following.leader, self.following.leader_epoch) != wanted:
            self.following = FollowerState(*wanted, BACKOFF_MS)
            self.perform(self.following.start(self.log.position()))
            self.sim.soon(self, lambda state=self.following: self.fetch(state))

    # as leader

    def produce(self, value: str) -> None:
        leadership, image = self.leadership, self.image
        if leadership is None or image is None:
            return
        if len(leadership.isr) < leadership.effective_min_isr(self.sim.min_isr):
            self.sim.counts["refused: too few replicas"] += 1
            return
        self.log.append(leadership.leader_epoch, value)
        self.unacknowledged.append((self.log.end_offset, value))
        self.sim.counts["appended"] += 1
        waiting, self.waiting_fetch = self.waiting_fetch, []
        for _, answer in waiting:
            answer()
        self.commit()

    def commit(self) -> None:
        leadership = self.leadership
        if leadership is None:
            return
        end = leadership.committed_offset(self.sim.now, self.log.end_offset, self.eligible, self.sim.min_isr)
        if end > self.log.high_watermark:
            self.sim.on_committed(self, self.log.high_watermark, end)
            self.log.high_watermark = end
        while self.unacknowledged and self.unacknowledged[0][0] <= self.log.high_watermark:
            offset, value = self.unacknowledged.pop(0)
            if len(leadership.maximal_isr) >= leadership.effective_min_isr(self.sim.min_isr):
                self.sim.on_acknowledged(offset - 1, value)

    def serve_fetch(self, replica: int, epoch: int, position: Any, answer: Callable[[tuple[Any, ...]], None]) -> None:
        """As the fetch handler does: epochs first, then the log, then the follower's state."""
        leadership = self.leadership
        image = self.image
        if leadership is None or image is None:
            return answer(("error", ErrorCode.NOT_LEADER_OR_FOLLOWER))
        if position.leader_epoch < leadership.leader_epoch:
            return answer(("error", ErrorCode.FENCED_LEADER_EPOCH))
        if position.leader_epoch > leadership.leader_epoch:
            return answer(("error", ErrorCode.UNKNOWN_LEADER_EPOCH))
        try:
            if position.last_fetched_epoch >= 0:
                found, end = self.log.end_offset_for_epoch(position.last_fetched_epoch)
                if found < 0:
                    raise OffsetOutOfRange(position.offset, 0, self.log.end_offset)
                if found < position.last_fetched_epoch or end < position.offset:
                    self.sim.counts["diverging"] += 1
                    return answer(("diverging", position.offset, found, end))
            if position.offset > self.log.end_offset:
                raise OffsetOutOfRange(position.offset, 0, self.log.end_offset)
            leadership.on_fetch(
                self.sim.now,
                replica,
                broker_epoch=epoch,
                fetch_offset=position.offset,
                log_start_offset=0,
                log_end_offset=self.log.end_offset,
            )
        except OffsetOutOfRange:
            return answer(("error", ErrorCode.OFFSET_OUT_OF_RANGE))
        except UnknownReplica:
            return answer(("error", ErrorCode.UNKNOWN_LEADER_EPOCH))
        except StaleBrokerEpoch:
            self.sim.counts["stale broker epochs"] += 1
            return answer(("error", ErrorCode.NOT_LEADER_OR_FOLLOWER))
        change = leadership.maybe_expand(replica, self.log.high_watermark, self.eligible, self.epoch)
        if change is not None:
            self.send_alter_partition(change)
        self.commit()

        def read() -> None:
            records = self.log.records[position.offset : position.offset + RECORDS_PER_FETCH]
            answer(("data", position.offset, list(records), self.log.high_watermark))

        if position.offset < self.log.end_offset:
            return read()
        self.waiting_fetch.append((replica, read))
        self.sim.after(FETCH_WAIT_MS, self, lambda: self.end_wait(read))
        return None

    def end_wait(self, read: Callable[[], None]) -> None:
        for entry in self.waiting_fetch:
            if entry[1] is read:
                self.waiting_fetch.remove(entry)
                read()
                return

    def check_lag(self) -> None:
        if self.leadership is not None:
            change = self.leadership.maybe_shrink(self.sim.now, self.log.end_offset, self.epoch)
            if change is not None:
                self.send_alter_partition(change)
        self.sim.after(LAG_MAX_MS // 2, self, self.check_lag)

    def send_alter_partition(self, change: IsrChange) -> None:
        self.sim.counts["ISR changes wanted"] += 1
        leadership = self.leadership

        def is_awaited() -> bool:
            return self.leadership is leadership and leadership is not None and leadership.pending is change

        def answered(answer: IsrResult | ErrorCode) -> None:
            if not is_awaited():
                return
            assert leadership is not None
            if isinstance(answer, IsrResult):
                leadership.on_result(change, answer)
                self.commit()
            elif answer in (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED):
                leadership.on_not_attempted(change)
                self.commit()

        def again() -> None:
            if is_awaited():
                self.sim.to_controller(self, change, answered)
                self.sim.after(BACKOFF_MS * 4, self, again)

        again()

    # as follower

    def fetch(self, state: FollowerState) -> None:
        if self.following is not state:
            return
        if not state.wants_fetch(self.sim.now):
            if state.wants_offsets(self.sim.now):
                self.ask_offsets(state)
            else:
                self.sim.after(BACKOFF_MS, self, lambda: self.fetch(state))
            return
        position = state.position(self.log.position())
        answered = [False]

        def on_answer(answer: tuple[Any, ...]) -> None:
            if answered[0]:
                return
            answered[0] = True
            if self.following is state:
                self.on_answer(state, answer)
                self.fetch(state)

        def on_timeout() -> None:
            if not answered[0]:
                answered[0] = True
                state.delay(self.sim.now, "")
                self.fetch(state)

        leader, epoch = self.sim.brokers[state.leader], self.epoch
        self.sim.message(
            self,
            leader,
            lambda: leader.serve_fetch(
                self.id, epoch, position, lambda answer: self.sim.message(leader, self, lambda: on_answer(answer))
            ),
        )
        self.sim.after(FETCH_WAIT_MS * 3, self, on_timeout)

    def on_answer(self, state: FollowerState, answer: tuple[Any, ...]) -> None:
        kind, *rest = answer
        position = self.log.position()
        if kind == "error":
            self.perform(state.on_error(self.sim.now, rest[0]))
        elif kind == "diverging":
            self.perform(state.on_diverging(rest[0], position, rest[1], rest[2]))
        else:
            self.perform(state.on_data(rest[0], position, rest[2], 0), rest[1])

    def ask_offsets(self, state: FollowerState) -> None:
        leader = self.sim.brokers[state.leader]
        if leader.alive and leader.leadership is not None and leader.leadership.leader_epoch == state.leader_epoch:
            self.sim.counts["outside the leader's log"] += 1
            self.perform(state.on_leader_offsets(self.log.position(), 0, leader.log.end_offset))
        else:
            state.delay(self.sim.now, "")
        self.sim.after(BACKOFF_MS, self, lambda: self.fetch(state))

    def perform(self, step: object, records: list[tuple[int, str]] | None = None) -> None:
        if isinstance(step, Append):
            for epoch, value in records or ():
                self.log.append(epoch, value)
            self.log.high_watermark = max(self.log.high_watermark, min(step.high_watermark, self.log.end_offset))
        elif isinstance(step, Truncate):
            if step.to_offset < self.log.end_offset:
                self.sim.counts["truncations"] += 1
            self.log.truncate(step.to_offset)
        elif isinstance(step, TruncateFully):
            raise AssertionError("nothing was ever deleted from a log")

    # life

    def forget(self) -> None:
        self.leadership = self.following = None
        self.unacknowledged.clear()
        self.waiting_fetch.clear()

    def crash(self, *, loses_unsynced: bool = False) -> None:
        self.alive = self.paused = False
        self.life += 1
        self.image = None
        self.forget()
        log = self.log
        if loses_unsynced:
            self.has_lost = log.synced < log.end_offset
            log.truncate(log.synced)
        log.high_watermark = self.sim.rng.randint(log.checkpointed, max(log.checkpointed, log.high_watermark))

    def stop(self) -> None:
        """Everything is synced, and a file says so."""
        self.log.synced = self.log.end_offset
        self.log.checkpointed = self.log.high_watermark
        self.crash()
        self.stopped_cleanly = True
