"""Followers' fetches: one task pulls many partitions from one leader, with an incremental session.

A fetcher has one request under way. Its answer is carried out before the next request is made, and the next request's
offsets are what tells the leader that the records are here. A partition that is throttled is left out of requests
while the quota is exceeded, unless it is level: it must not fall out of the in-sync set for what others copy.

A request that waits for records at the leader may be there for half a second. A partition that comes meanwhile, because
its leader died, cannot wait so long: nothing is committed there before it is fetched. So the fetcher hangs up and asks
anew, for all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from broker.clock import now_ms as wall_clock_ms
from broker.network.client import CallFailed
from broker.replication.cluster import monotonic_ms
from broker.replication.fetch_session import FetchSessionClient
from broker.replication.follower import (
    Append,
    Delay,
    FetchPosition,
    FollowerPhase,
    FollowerState,
    GiveUp,
    LogPosition,
    Step,
    Truncate,
    TruncateFully,
)
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import FetchResponse, PartitionData
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.schema import Message
from protocol.uuids import Uuid
from storage.errors import OffsetOutOfRange, StorageError, UnexpectedAppendOffset

if TYPE_CHECKING:
    from broker.partition import Partition
    from broker.replication.fetchers import ReplicaFetchers
    from storage.log import Log

log = logging.getLogger(__name__)

_LATEST, _EARLIEST = -1, -2

PATIENCE_S: Final = 0.01
"""Under load answers come sooner than this, and then nothing has to be asked twice."""
HANG_UP_INTERVAL_S: Final = 0.2
"""At least between two hang-ups: a request that names all partitions costs more than one that names changes."""

Key = tuple[Uuid, int]


class Followed:
    """A partition and its state. Remembers what the next fetch asks for: most of a thousand partitions are idle."""

    __slots__ = ("_log", "_position", "key", "partition", "state")

    def __init__(self, partition: Partition, state: FollowerState) -> None:
        self.key: Key = (partition.topic_id, partition.index)
        self.partition = partition
        self.state = state
        self._log: Log | None = None
        self._position: FetchPosition | None = None

    def on_step(self) -> None:
        """Steps are what moves a log that follows; else only its start moves, by retention, or the log itself."""
        self._position = None

    def position(self) -> FetchPosition:
        known, log_ = self._position, self.partition.log
        if known is None or known.log_start_offset != log_.log_start_offset or self._log is not log_:
            self._log = log_
            self._position = known = self.state.position(position_of(log_))
        return known


def position_of(log_: Log) -> LogPosition:
    latest = log_.leader_epochs.latest_epoch
    return LogPosition(
        log_.log_start_offset,
        log_.high_watermark,
        log_.log_end_offset,
        -1 if latest is None else latest,
        log_.end_offset_for_epoch,
    )


class LeaderFetcher:
    """Pulls from one broker. Owned by `ReplicaFetchers`, which adds and removes partitions on the loop.

    The order of `followed` is that of a request which names all: who was served goes to the end, so that everyone gets
    a turn, also where the leader has no room for a session that would see to it.
    """

    def __init__(self, leader: int, fetcher_id: int, fetchers: ReplicaFetchers) -> None:
        self.leader = leader
        self.fetcher_id = fetcher_id
        self._fetchers = fetchers
        self.followed: dict[Key, Followed] = {}
        self._session: FetchSessionClient[Key, FetchPosition] = FetchSessionClient()
        self._wake = asyncio.Event()
        self._is_unreachable = False
        self._is_fetching = False
        self._hang_up: asyncio.TimerHandle | None = None
        """Set when a partition came during a fetch; gone when the fetch is answered."""
        self._has_hung_up = False
        self._last_hang_up_s = 0.0
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"fetcher {fetcher_id} of broker {leader}"
        )

    def __len__(self) -> int:
        return len(self.followed)

    def add(self, partition: Partition, state: FollowerState) -> None:
        followed = Followed(partition, state)
        self._perform(followed, state.start(position_of(partition.log)))
        self.take(followed)

    def take(self, followed: Followed) -> None:
        """One that another fetcher of the same leader has pulled so far: it goes on where it was."""
        self.followed[followed.key] = followed
        self._wake.set()
        if self._is_fetching and self._hang_up is None:
            loop = asyncio.get_running_loop()
            at = max(loop.time() + PATIENCE_S, self._last_hang_up_s + HANG_UP_INTERVAL_S)
            self._hang_up = loop.call_at(at, self._on_impatient)

    def _on_impatient(self) -> None:
        self._has_hung_up = True
        self._last_hang_up_s = asyncio.get_running_loop().time()
        self._fetchers.hang_up(self.leader, self.fetcher_id)

    def remove(self, key: Key) -> Followed | None:
        return self.followed.pop(key, None)

    def wake(self) -> None:
        self._wake.set()

    async def stop(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    # --- the loop

    async def _run(self) -> None:
        while True:
            try:
                await self._round()
            except Exception:  # a fetcher that ends leaves all its partitions behind for good
                log.exception("Fetching from broker %d failed; it goes on", self.leader)
                self._session.reset()
                await asyncio.sleep(self._fetchers.backoff_ms / 1000)

    async def _round(self) -> None:
        self._wake.clear()
        now = monotonic_ms()
        wanted = {key: one for key, one in self.followed.items() if one.state.wants_fetch(now)}
        if len(wanted) < len(self.followed):
            asking = [one for one in self.followed.values() if one.state.wants_offsets(now)]
            if asking:
                await self._ask_offsets(asking)
                return
        left_out = self._leave_out_throttled(wanted, now) + self._delayed(wanted, now)
        wait_ms = min(left_out) - now if left_out else None
        if wanted:
            await self._fetch(wanted, wait_ms)
        else:
            await self._wait(wait_ms)

    def _delayed(self, wanted: Mapping[Key, Followed], now_ms: int) -> list[int]:
        """When the delays of those that are not wanted now are over."""
        if len(wanted) == len(self.followed):
            return []
        states = [one.state for one in self.followed.values()]
        return [
            state.delayed_until_ms
            for state in states
            if state.phase is not FollowerPhase.FAILED and state.delayed_until_ms > now_ms
        ]

    def _leave_out_throttled(self, wanted: dict[Key, Followed], now_ms: int) -> list[int]:
        """When those that were left out may be fetched again, if there are any."""
        quota = self._fetchers.quota
        if not quota.is_exceeded(now_ms):
            return []
        held = [
            key for key, one in wanted.items() if one.partition.follower_quota is not None and not one.state.is_level
        ]
        for key in held:
            del wanted[key]
        return [quota.allowed_at_ms(now_ms)] if held else []

    async def _wait(self, wait_ms: int | None) -> None:
        """So long, or until a partition is added."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                await self._wake.wait()

    async def _fetch(self, wanted: Mapping[Key, Followed], max_wait_ms: int | None) -> None:
        """Waits no longer for records than `max_wait_ms`: then others want to be fetched, too."""
        positions = {key: one.position() for key, one in wanted.items()}
        asked = self._session.request(positions)
        self._is_fetching = True
        try:
            response = await self._call(self._fetchers.fetch_request(asked, max_wait_ms))
        except CallFailed as error:
            self._session.reset()
            if not self._has_hung_up:
                self._on_unreachable(wanted.values(), str(error))
            return
        finally:
            self._is_fetching = self._has_hung_up = False
            if self._hang_up is not None:
                self._hang_up.cancel()
                self._hang_up = None
        assert isinstance(response, FetchResponse)
        self._is_unreachable = False
        self._session.on_response(response.session_id, response.error_code != ErrorCode.NONE)
        if response.error_code != ErrorCode.NONE:
            code = ErrorCode(response.error_code)
            if code not in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH):
                self._on_unreachable(wanted.values(), f"it refused the fetch with {code.name}")
            return
        served: list[Followed] = []
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                followed = wanted.get(key)
                # Its leader may have changed while the answer was on its way.
                if followed is not None and self.followed.get(key) is followed:
                    self._on_answer(followed, positions[key].offset, data)
                    if data.records and self.followed.get(key) is followed:
                        self.followed[key] = self.followed.pop(key)
                        served.append(followed)
        await self._sync(served)

    async def _sync(self, served: list[Followed]) -> None:
        """Where `flush.messages` asks for it: the next fetch tells the leader what is here, so it has to be durable."""
        logs = [one.partition.log for one in served if one.partition.log.rules.flushes]
        due = [one.flush() for one in logs if one.needs_flush(wall_clock_ms())]
        if due:
            for outcome in await asyncio.gather(*due, return_exceptions=True):
                if isinstance(outcome, StorageError):  # its directory is offline, and the partition with it
                    log.error("%s", outcome)
                elif outcome is not None:
                    raise outcome

    def _on_answer(self, followed: Followed, asked_offset: int, data: PartitionData) -> None:
        state, position = followed.state, position_of(followed.partition.log)
        step: Step
        if data.error_code != ErrorCode.NONE:
            step = state.on_error(monotonic_ms(), ErrorCode(data.error_code))
        elif data.diverging_epoch.epoch >= 0 or data.diverging_epoch.end_offset >= 0:
            diverging = data.diverging_epoch
            step = state.on_diverging(asked_offset, position, diverging.epoch, diverging.end_offset)
        else:
            step = state.on_data(asked_offset, position, data.high_watermark, data.log_start_offset)
        self._perform(followed, step, data.records)

    def _on_unreachable(self, followed: Iterable[Followed], reason: str) -> None:
        if not self._is_unreachable:
            log.warning("Broker %d cannot be fetched from: %s", self.leader, reason)
            self._is_unreachable = True
        now = monotonic_ms()
        for one in followed:
            one.state.delay(now, "")

    # --- steps

    def _perform(self, followed: Followed, step: Step, records: bytes | memoryview | None = None) -> None:
        partition, state = followed.partition, followed.state
        followed.on_step()
        try:
            if isinstance(step, Append):
                self._append(followed, step, records)
            elif isinstance(step, Truncate):
                log.info("%s: truncating to %d, as broker %d has it", partition, step.to_offset, self.leader)
                partition.log.truncate_to(step.to_offset)
            elif isinstance(step, TruncateFully):
                partition.log.truncate_fully_and_start_at(step.start_offset)
            elif isinstance(step, GiveUp):
                log.info("%s: broker %d is not followed: %s", partition, self.leader, step.reason)
            elif isinstance(step, Delay) and step.reason:
                log.warning("%s cannot be fetched from broker %d: %s", partition, self.leader, step.reason)
        except StorageError as error:
            if partition.log.log_dir.online:  # a full disk; space may come
                state.delay(monotonic_ms(), "")
                log.error("%s: what broker %d sent cannot be stored: %s", partition, self.leader, error)
            else:
                state.fail()
        except (ApiError, UnexpectedAppendOffset, OffsetOutOfRange) as error:
            state.delay(monotonic_ms(), "")
            log.error("%s: what broker %d sent cannot be appended: %s", partition, self.leader, error)
        except Exception:  # the other partitions go on
            state.delay(monotonic_ms(), "")
            log.exception("%s: the answer of broker %d could not be carried out", partition, self.leader)

    def _append(self, followed: Followed, step: Append, records: bytes | memoryview | None) -> None:
        partition, state = followed.partition, followed.state
        log_ = partition.log
        if records:
            quota = partition.follower_quota
            if quota is not None:
                quota.record(monotonic_ms(), len(records))
            log_.append_as_follower(memoryview(records))
        state.on_appended(log_.log_end_offset, step.high_watermark)
        if log_.advance_high_watermark(step.high_watermark):
            partition.on_follower_progress()
        if log_.log_start_offset < step.log_start_offset <= log_.high_watermark:
            log_.advance_log_start(step.log_start_offset)

    # --- a follower outside the leader's log

    async def _ask_offsets(self, asking: list[Followed]) -> None:
        now = monotonic_ms()
        for one in asking:
            try:
                start = await self._leader_offset(one, _EARLIEST)
                end = await self._leader_offset(one, _LATEST)
            except CallFailed as error:
                self._on_unreachable(asking, str(error))
                return
            except ApiError as error:
                one.state.delay(now, "")
                log.warning("%s: broker %d does not tell its offsets: %s", one.partition, self.leader, error)
                continue
            if self.followed.get(one.key) is one:
                log_ = one.partition.log
                step = one.state.on_leader_offsets(position_of(log_), start, end)
                log.info(
                    "%s: [%d, %d) is outside the log of broker %d, [%d, %d)",
                    one.partition, log_.log_start_offset, log_.log_end_offset, self.leader, start, end,
                )  # fmt: skip
                self._perform(one, step)

    async def _leader_offset(self, followed: Followed, which: int) -> int:
        partition = followed.partition
        wanted = ListOffsetsPartition(
            partition_index=partition.index, current_leader_epoch=followed.state.leader_epoch, timestamp=which
        )
        request = ListOffsetsRequest(
            replica_id=self._fetchers.node_id,
            topics=[ListOffsetsTopic(name=partition.topic, partitions=[wanted])],
        )
        response = await self._call(request)
        assert isinstance(response, ListOffsetsResponse)
        (answer,) = response.topics[0].partitions
        if answer.error_code != ErrorCode.NONE:
            raise ApiError(ErrorCode(answer.error_code))
        return answer.offset

    async def _call(self, request: Message) -> Message:
        return await self._fetchers.call(self.leader, self.fetcher_id, request)
