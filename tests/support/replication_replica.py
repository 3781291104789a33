"""A replica of the replication simulation: the product's partition and follower, between a list and a model network.

What handlers and fetchers do is done here: `broker.handlers.data` in front of the leader, `broker.replication.fetcher`
at the follower's side. The partition itself, with its leader and those who wait for commits, is the product's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from support.partitions import TOPIC
from support.replication_log import TOPIC_NAME, Entry, ModelLog

from broker.handlers.data import fetch as fetch_handler
from broker.handlers.data import list_offsets as list_offsets_handler
from broker.partition import Partition
from broker.replication.follower import Append, FetchPosition, FollowerState, Step, Truncate, TruncateFully
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import EpochEndOffset
from protocol.records import BatchHeader
from storage.errors import OffsetOutOfRange, StorageError, UnexpectedAppendOffset

if TYPE_CHECKING:
    from support.replication_model import Broker

FETCH_WAIT_MS = 100
FETCH_TIMEOUT_MS = 300
BACKOFF_MS = 50
RECORDS_PER_FETCH = 4


class Found(NamedTuple):
    """An answer to a fetch: an error, or where the logs part, or entries."""

    error: ErrorCode = ErrorCode.NONE
    diverging: EpochEndOffset | None = None
    entries: list[Entry] = []
    high_watermark: int = -1
    log_start_offset: int = 0


class ReadPosition(NamedTuple):
    """As `broker.fetch_sessions.FetchTarget`, as far as a look at the log needs it."""

    fetch_offset: int
    last_fetched_epoch: int
    current_leader_epoch: int


class WaitingFetch:
    """A follower's fetch on long poll at the leader. Its hash is a number, so that sets have the same order always."""

    __slots__ = ("answer", "is_done", "number", "position", "replica")

    def __init__(self, replica: Replica, position: FetchPosition, answer: Callable[[Found], None], number: int) -> None:
        self.replica = replica
        self.position = position
        self.answer = answer
        self.is_done = False
        self.number = number

    def __hash__(self) -> int:
        return self.number

    def on_append(self, partition: Partition, size: int) -> None:
        self.end()

    def on_progress(self, partition: Partition) -> None: ...

    def on_gone(self, partition: Partition) -> None:
        self.end()

    def end(self) -> None:
        """Looks again: what is there now, or why nothing is."""
        if not self.is_done:
            self.is_done = True
            self.replica.partition.replica_waiters.discard(self)
            self.answer(self.replica.read_for_follower(self.position))


class Replica:
    def __init__(self, broker: Broker, log: ModelLog) -> None:
        self.broker = broker
        self.sim = broker.sim
        self.index = log.index
        self.log = log
        self.partition = Partition(TOPIC_NAME, log.index, TOPIC, broker.id, log, broker.cluster)  # type: ignore[arg-type]
        self.following: FollowerState | None = None
        self._request: int | None = None
        """The one under way, and since when."""
        self._asked_ms = 0
        log.on_high_watermark = self._on_high_watermark

    def _on_high_watermark(self, before: int, after: int) -> None:
        if self.partition.leader == self.broker.id:
            self.sim.histories[self.index].on_committed(self.broker, before, after)

    # --- the leader, as its handlers see it

    def serve_produce(self, header: BatchHeader, answer: Callable[[ErrorCode, int], None]) -> None:
        """`answer` is called with the outcome and the offset; perhaps never, then the client's time is up."""
        try:
            done = self.partition.append(header, self.sim.now, acks=-1)  # type: ignore[arg-type]
        except ApiError as error:
            self.sim.counts[f"produce refused: {error.code.name}"] += 1
            return answer(error.code, -1)
        except StorageError:
            self.sim.counts["produce refused: disk"] += 1
            return answer(ErrorCode.KAFKA_STORAGE_ERROR, -1)
        self.sim.counts["duplicates" if done.duplicate else "appended"] += 1
        return self.partition.when_committed(done.last_offset + 1, lambda outcome: answer(outcome, done.first_offset))

    def serve_fetch(
        self, follower: int, broker_epoch: int, position: FetchPosition, answer: Callable[[Found], None]
    ) -> None:
        found = self.read_for_follower(position)
        if found.error is ErrorCode.NONE and found.diverging is None:
            try:
                self.partition.on_replica_fetch(follower, broker_epoch, position.offset, position.log_start_offset)
            except ApiError as error:
                if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    self.sim.counts["stale broker epochs"] += 1
                return answer(Found(error.code))
            found = found._replace(high_watermark=self.log.high_watermark)
        if found.error is not ErrorCode.NONE or found.diverging is not None or found.entries:
            return answer(found)
        waiting = WaitingFetch(self, position, answer, next(self.sim.order))
        self.partition.replica_waiters.add(waiting)
        self.sim.after(FETCH_WAIT_MS, self.broker, waiting.end)
        return None

    def read_for_follower(self, position: FetchPosition) -> Found:
        try:
            log = self.partition.lead_or_raise(position.leader_epoch)
            asked = ReadPosition(position.offset, position.last_fetched_epoch, position.leader_epoch)
            return self._read(asked, log.log_end_offset, fetch_handler._diverging_epoch(log, asked))  # type: ignore[arg-type]
        except ApiError as error:
            return Found(error.code)
        except OffsetOutOfRange:
            return Found(ErrorCode.OFFSET_OUT_OF_RANGE)

    def serve_reader(self, asked: ReadPosition) -> Found:
        """A consumer reads what is committed as far as this replica knows, leader or not (KIP-392)."""
        try:
            log = self.partition.read_or_raise(asked.current_leader_epoch)
            diverging = fetch_handler._diverging_for_consumer(self.partition, asked)  # type: ignore[arg-type]
            return self._read(asked, log.high_watermark, diverging)
        except ApiError as error:
            return Found(error.code)
        except OffsetOutOfRange:
            return Found(ErrorCode.OFFSET_OUT_OF_RANGE)

    def _read(self, asked: ReadPosition, end: int, diverging: EpochEndOffset | None) -> Found:
        log = self.log
        if diverging is not None:
            self.sim.counts["diverging"] += 1
            return Found(diverging=diverging, high_watermark=log.high_watermark)
        start = asked.fetch_offset
        if not log.log_start_offset <= start <= log.log_end_offset:
            raise OffsetOutOfRange(start, log.log_start_offset, log.log_end_offset)
        entries = log.entries[start : min(end, start + RECORDS_PER_FETCH)]
        return Found(entries=entries, high_watermark=log.high_watermark, log_start_offset=log.log_start_offset)

    def latest(self, leader_epoch: int) -> int:
        """ListOffsets for a client. Raises ApiError."""
        log = self.partition.lead_or_raise(leader_epoch)
        return list_offsets_handler._look_up(self.partition, log, list_offsets_handler.LATEST, False, False).offset

    # --- the follower, as `ReplicaFetchers` and `LeaderFetcher` drive it

    def follow(self) -> None:
        """After a change of the metadata: another leader, or another epoch."""
        image = self.partition.image
        assert image is not None
        if image.leader in (self.broker.id, -1):
            self.following = None
            return
        state = self.following
        if state is None or (state.leader, state.leader_epoch) != (image.leader, image.leader_epoch):
            self.following = state = FollowerState(image.leader, image.leader_epoch, BACKOFF_MS)
            self._perform(state, state.start(self.log.position()))
            self._request = None
            self._asked_ms = self.sim.now
            self.sim.after(0, self.broker, lambda: self._pull(state))
            self.sim.after(FETCH_TIMEOUT_MS, self.broker, lambda: self._watch(state))

    def _pull(self, state: FollowerState) -> None:
        """The next request, if this state still counts."""
        if self.following is not state:
            return
        now = self.sim.now
        if state.wants_fetch(now):
            self._fetch(state)
        elif state.wants_offsets(now):
            self._ask_offsets(state)
        elif state.delayed_until_ms > now:
            self.sim.after(state.delayed_until_ms - now, self.broker, lambda: self._pull(state))

    def _fetch(self, state: FollowerState) -> None:
        position = state.position(self.log.position())
        broker, epoch = self.broker, self.broker.epoch

        def serve(answer: Callable[[Any], None]) -> None:
            leader = broker.sim.brokers[state.leader].replicas.get(self.index)
            if leader is None:
                answer(Found(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            else:
                leader.serve_fetch(broker.id, epoch, position, answer)

        def answered(found: Found) -> None:
            self._on_answer(state, position.offset, found)
            self._pull(state)

        self._call(state, serve, answered)

    def _call(
        self,
        state: FollowerState,
        serve: Callable[[Callable[[Any], None]], None],
        answered: Callable[[Any], None],
    ) -> None:
        """One request to the leader, answered once or given up."""
        self._request = request = next(self.sim.order)
        self._asked_ms = self.sim.now

        def on_answer(what: Any) -> None:
            if self._request == request and self.following is state:
                self._request = None
                answered(what)

        sim, broker, leader = self.sim, self.broker, self.sim.brokers[state.leader]
        sim.message(broker, leader, lambda: serve(lambda what: sim.message(leader, broker, lambda: on_answer(what))))

    def _watch(self, state: FollowerState) -> None:
        """Gives up a request that is not answered in time."""
        if self.following is not state:
            return
        due = self._asked_ms + FETCH_TIMEOUT_MS
        now = self.sim.now
        if self._request is not None and now >= due:
            self._request = None
            state.delay(now, "")
            self._pull(state)
        self.sim.after(due - now if due > now else FETCH_TIMEOUT_MS, self.broker, lambda: self._watch(state))

    def _on_answer(self, state: FollowerState, asked_offset: int, found: Found) -> None:
        position = self.log.position()
        if found.error is not ErrorCode.NONE:
            self._perform(state, state.on_error(self.sim.now, found.error))
        elif found.diverging is not None:
            parted = found.diverging
            self._perform(state, state.on_diverging(asked_offset, position, parted.epoch, parted.end_offset))
        else:
            self._perform(
                state,
                state.on_data(asked_offset, position, found.high_watermark, found.log_start_offset),
                found.entries,
            )

    def _ask_offsets(self, state: FollowerState) -> None:
        def serve(answer: Callable[[Any], None]) -> None:
            leader = self.sim.brokers[state.leader].replicas.get(self.index)
            try:
                log = None if leader is None else leader.partition.lead_or_raise(state.leader_epoch)
                answer(None if log is None else (log.log_start_offset, log.log_end_offset))
            except ApiError:
                answer(None)

        def answered(ends: tuple[int, int] | None) -> None:
            if ends is None:
                state.delay(self.sim.now, "")
            else:
                self.sim.counts["outside the leader's log"] += 1
                self._perform(state, state.on_leader_offsets(self.log.position(), *ends))
            self._pull(state)

        self._call(state, serve, answered)

    def _perform(self, state: FollowerState, step: Step, entries: list[Entry] | None = None) -> None:
        log = self.log
        try:
            if isinstance(step, Append):
                if entries:
                    log.append_as_follower(log.log_end_offset, entries)
                state.on_appended(log.log_end_offset, step.high_watermark)
                log.advance_high_watermark(step.high_watermark)
                log.advance_log_start(step.log_start_offset)
            elif isinstance(step, Truncate):
                if step.to_offset < log.log_end_offset:
                    self.sim.counts["truncations"] += 1
                    log.truncate_to(step.to_offset)
                    self.sim.histories[self.index].on_truncated(self.broker, step.to_offset)
                else:
                    log.truncate_to(step.to_offset)
            elif isinstance(step, TruncateFully):
                log.truncate_fully_and_start_at(step.start_offset)
                self.sim.histories[self.index].on_truncated(self.broker, step.start_offset)
        except StorageError:
            self.sim.counts["follower's disk full"] += 1
            state.delay(self.sim.now, "")
        except UnexpectedAppendOffset:
            state.delay(self.sim.now, "")
