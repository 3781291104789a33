"""One partition of `__consumer_offsets` and the core that owns its groups: append first, answer afterwards."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from broker.clock import now_ms
from broker.coordinator.effects import Effects, Reply
from broker.coordinator.group.config import GroupConfig
from broker.coordinator.group.core import GroupCoordinator
from broker.coordinator.loading import replay_log
from broker.coordinator.records import CoordinatorRecord, encode_record
from broker.coordinator.uncommitted import UncommittedReplies
from broker.partition import Partition
from controller.image import ImageDelta, MetadataImage
from protocol.compression import Compression
from protocol.errors import ApiError, DecodeError, ErrorCode
from protocol.records import Record, build_batch
from storage.errors import OffsetOutOfRange, StorageError
from storage.results import AppendOrigin

log = logging.getLogger("broker.coordinator")

Answer = asyncio.Future[Any]
Write = Callable[[GroupCoordinator, int, object], Effects]
"""A request to the core: the core, the time, and the token that its reply will carry."""

RELOAD_PAUSE_MS = 1_000
"""Between two reloads of one shard: a disk that stays full must not make it read its log in a circle."""

STANDSTILL_PAUSE_MS = 500
"""How often a shard whose time stands still looks whether it goes on. Apache Kafka tries its timers again as often."""

_RETRY_LATER = frozenset((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REQUEST_TIMED_OUT))
_LOOK_ELSEWHERE = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR))
_TOO_LARGE = frozenset((ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE))


class Shard:
    """Loading, then active, until closed. Everything runs on the loop; nothing half done is held across an await.

    A failed append leaves a core that knows more than the log: everyone who waits hears an error and the core is
    built again from the log. Replies leave in the order of their effects, also behind an append that has yet to be
    synced, because they may tell of what it stores.

    While fewer replicas are in sync than the topic demands, nothing can be committed. Then requests that write are
    refused before the core hears of them, and time stands still: no session ends, no rebalance goes on. Groups that are
    stable stay so, and their offsets can be read.
    """

    __slots__ = (
        "_armed_ms",
        "_changes",
        "_compression",
        "_core",
        "_failed_ms",
        "_loading",
        "_make_core",
        "_stands_since_ms",
        "_syncing",
        "_timer",
        "_uncommitted",
        "_unsent",
        "_waiting",
        "closed",
        "index",
        "partition",
    )

    def __init__(
        self,
        partition: Partition,
        make_core: Callable[[], GroupCoordinator],
        compression: Compression = Compression.NONE,
        commit_timeout_ms: int = 5_000,
    ) -> None:
        self.partition = partition
        self.index = partition.index
        self.closed = False
        self._make_core = make_core
        self._compression = compression
        self._core: GroupCoordinator | None = None
        self._changes: list[tuple[MetadataImage, ImageDelta]] = []
        """Images that came while the log was read."""
        self._waiting: set[Answer] = set()
        self._unsent: list[Reply] = []
        self._uncommitted = UncommittedReplies(partition, commit_timeout_ms, self._send, self._expire)
        self._syncing: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[None] | None = None
        self._failed_ms = 0
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ms = 0
        self._stands_since_ms: int | None = None
        """Since when time stands still."""

    @property
    def is_active(self) -> bool:
        return self._core is not None

    @property
    def core_or_raise(self) -> GroupCoordinator:
        """The core, for reads of what need not be committed."""
        if self._core is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR if self.closed else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return self._core

    # Loading

    def start(self) -> None:
        """An empty log is loaded at once, so that the first request to a new topic need not come again."""
        self.closed = False
        log_ = self.partition.log
        if log_.log_start_offset == log_.log_end_offset:
            self._activate(self._make_core())
        else:
            self._loading = asyncio.get_running_loop().create_task(self._load())

    async def _load(self, pause_ms: int = 0) -> None:
        """Reads the log. A log that cannot be read leaves the shard closed: its groups have no coordinator here."""
        if pause_ms:
            await asyncio.sleep(pause_ms / 1000)
        await self._log_is_committed()
        begin = now_ms()
        self._changes.clear()
        core = self._make_core()
        try:
            replayed = await replay_log(self.partition.log, core)
        except (DecodeError, StorageError, OffsetOutOfRange, OSError) as error:
            log.error("%s cannot be loaded, its groups have no coordinator: %s", self.partition, error)
            self.closed = True
            return
        except Exception:
            log.exception("%s cannot be loaded, its groups have no coordinator", self.partition)
            self.closed = True
            return
        log.info("%s: %d records replayed in %d ms", self.partition, replayed, now_ms() - begin)
        self._loading = None
        self._activate(core)

    async def _log_is_committed(self) -> None:
        """What the last coordinator told its clients may be above the high watermark that a new leader knows. It waits
        until its followers have confirmed it, so that nothing which was told is missing."""
        settled: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def on_committed(outcome: ErrorCode) -> None:
            if not settled.done():
                settled.set_result(outcome)

        self.partition.when_committed(self.partition.log.log_end_offset, on_committed)
        await settled

    def _activate(self, core: GroupCoordinator) -> None:
        self._core = core
        self._stands_since_ms = None
        self._run(lambda: core.on_loaded(now_ms()))
        changes, self._changes = self._changes, []
        for image, delta in changes:
            self.on_image(image, delta)

    # Inputs

    def write(self, operation: Write) -> Answer:
        """Hands a request to the core that changes what is stored, unless that could not be committed now."""
        if self._stands_still(self.core_or_raise, now_ms()):
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self.ask(operation)

    def ask(self, operation: Write) -> Answer:
        """Hands a request to the core that mostly stores nothing. The answer is done already unless it has to wait."""
        core = self.core_or_raise
        answer: Answer = asyncio.get_running_loop().create_future()
        self._waiting.add(answer)
        try:
            effects = operation(core, now_ms(), answer)
        except Exception as error:
            self._fail(error)
        else:
            self._perform(effects)
        if not answer.done():
            answer.add_done_callback(self._on_answer_done)
        return answer

    def read(self, question: Callable[[GroupCoordinator], object]) -> Answer:
        """What the core knows now, told when it is committed: it must not be lost with the coordinator."""
        response = question(self.core_or_raise)
        return self.ask(lambda core, now, token: Effects.reply(token, response))

    def _on_answer_done(self, answer: Answer) -> None:
        self._waiting.discard(answer)
        if answer.cancelled() and self._core is not None:
            self._core.on_cancel(answer)

    def on_image(self, image: MetadataImage, delta: ImageDelta) -> None:
        core = self._core
        if core is not None:
            self._run(lambda: core.on_image(now_ms(), image, delta))
        elif not self.closed:
            self._changes.append((image, delta))

    def on_config(self, config: GroupConfig) -> None:
        """A core under construction was given the settings as they are when it began; loading takes moments."""
        if self._core is not None:
            self._core.shard.config = config

    def _on_timer(self) -> None:
        self._timer = None
        core = self._core
        if core is None:
            return
        if self._stands_still(core, now_ms()):
            self._arm()
        else:
            self._run(lambda: core.tick(now_ms()))

    def _run(self, step: Callable[[], Effects]) -> None:
        """An input that nobody waits for. It may touch many groups at once, so its records may fill several batches."""
        try:
            effects = step()
        except Exception as error:
            self._fail(error)
        else:
            self._perform(effects, divisible=True)

    # Effects

    def _perform(self, effects: Effects, *, divisible: bool = False) -> None:
        if effects.records:
            try:
                self._append(effects.records, divisible)
            except Exception as error:
                self._fail(error)
                return
        if self._syncing is not None:
            self._unsent += effects.replies
        elif effects.records and self.partition.log.needs_flush(now_ms()):
            self._unsent += effects.replies
            self._syncing = asyncio.get_running_loop().create_task(self._sync())
        elif (effects.records and not self.partition.commits_at_once) or self._uncommitted.is_pending:
            self._uncommitted.hold(effects.replies)
        else:
            self._send(effects.replies)
        self._arm()

    def _append(self, records: Sequence[CoordinatorRecord], divisible: bool) -> None:
        """One batch, so that a crash keeps all of the records or none.

        Here it is too late to refuse what cannot be committed now: the core has changed. Nobody is told of it before.
        """
        now = now_ms()
        encoded = [Record(0, now, *encode_record(record)) for record in records]
        batch = build_batch(encoded, compression=self._compression)
        if divisible and len(records) > 1 and len(batch) > self.partition.log.config.max_message_bytes:
            middle = len(records) // 2
            self._append(records[:middle], divisible)
            self._append(records[middle:], divisible)
            return
        self.partition.append(memoryview(batch), now, acks=1, origin=AppendOrigin.COORDINATOR)

    async def _sync(self) -> None:
        """The topic asks for a sync before the answer (`flush.messages`): all replies queue up behind it."""
        try:
            while True:
                covered, self._unsent = self._unsent, []
                await self.partition.log.flush()
                if not self.partition.commits_at_once:
                    self._uncommitted.hold(covered)
                else:
                    self._send(covered)
                if not self._unsent:
                    break
        except Exception as error:
            self._fail(error)
        finally:
            self._syncing = None

    def _send(self, replies: Sequence[Reply]) -> None:
        for token, response in replies:
            answer: Any = token
            self._waiting.discard(answer)
            if not answer.done():
                answer.set_result(response)

    def _expire(self, replies: Sequence[Reply]) -> None:
        for token, _ in replies:
            answer: Any = token
            self._waiting.discard(answer)
            if not answer.done():
                answer.set_exception(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def _fail(self, error: Exception) -> None:
        """Nothing of what the core believes since the failed append may be told to anyone.

        The same after a bug in the core, which may have left a group half changed.
        """
        if isinstance(error, (ApiError, StorageError)):
            log.error("%s: an append failed, the coordinator reads its log again: %s", self.partition, error)
        else:
            log.error("%s: the coordinator failed and reads its log again", self.partition, exc_info=error)
        self._core = None
        self._disarm()
        self._refuse(told_of(error))
        self._stop_loading()  # a sync may fail that began before what made the core go
        if not self.closed:
            now = now_ms()
            pause_ms = RELOAD_PAUSE_MS if now - self._failed_ms < RELOAD_PAUSE_MS else 0
            self._failed_ms = now
            self._loading = asyncio.get_running_loop().create_task(self._load(pause_ms))

    def _refuse(self, code: ErrorCode) -> None:
        waiting, self._waiting = self._waiting, set()
        self._unsent = []
        self._uncommitted.clear()
        for answer in waiting:
            if not answer.done():
                answer.set_exception(ApiError(code))

    # Time

    def _arm(self) -> None:
        """Keeps a timer that is early: heartbeats move the deadline away far more often than it comes closer."""
        core = self._core
        if core is None:
            return
        now = now_ms()
        stands_still = self._stands_still(core, now)
        deadline = core.next_deadline_ms
        if deadline is None:
            return
        if stands_still:
            deadline = max(deadline, now + STANDSTILL_PAUSE_MS)
        if self._timer is not None and self._armed_ms <= deadline:
            return
        self._disarm()
        self._armed_ms = deadline
        delay_s = max(deadline - now, 0) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _stands_still(self, core: GroupCoordinator, now: int) -> bool:
        """Whether nothing can be committed now. A client whose commits are refused may be too busy with looking for its
        coordinator to send heartbeats, so that time is given back to everyone when it is over."""
        since = self._stands_since_ms
        if self.partition.is_below_min_isr:
            self._stands_since_ms = now if since is None else since
            return True
        if since is not None:
            self._stands_since_ms = None
            core.on_standstill(now - since)
        return False

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # The end

    async def settle(self) -> None:
        """Waits for what is under way: reading the log, or the sync behind which answers wait."""
        for task in (self._loading, self._syncing):
            if task is not None:
                await asyncio.wait((task,))

    def close(self, code: ErrorCode) -> None:
        """Leadership went elsewhere, the topic was deleted, or the broker stops."""
        self.closed = True
        self._core = None
        self._changes.clear()
        self._disarm()
        self._refuse(code)
        self._stop_loading()

    def _stop_loading(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
            self._loading = None


def told_of(error: Exception) -> ErrorCode:
    """What a client hears when an append to the internal topic fails, as in Kafka."""
    if isinstance(error, StorageError):
        return ErrorCode.NOT_COORDINATOR
    if not isinstance(error, ApiError) or error.code in _TOO_LARGE:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    if error.code in _LOOK_ELSEWHERE:
        return ErrorCode.NOT_COORDINATOR
    if error.code in _RETRY_LATER:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error.code
