"""Followers' fetches: one task per leader, which pulls all partitions that follow it, with an incremental session.

A fetcher has one request under way. Its answer is carried out before the next request is made, and the next request's
offsets are what tells the leader that the records are here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from broker.network.client import CallFailed, NodeClients
from broker.replication.cluster import monotonic_ms
from broker.replication.fetch_session import FetchSessionClient, SessionRequest
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
from config.broker import BrokerConfig
from controller.image import MetadataImage
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
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
    from storage.log import Log

log = logging.getLogger(__name__)

LANE = "replication"
_LATEST, _EARLIEST = -1, -2

Key = tuple[Uuid, int]


class _Followed(NamedTuple):
    partition: Partition
    state: FollowerState


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
    """Pulls from one broker. Owned by `ReplicaFetchers`, which adds and removes partitions on the loop."""

    def __init__(self, leader: int, fetchers: ReplicaFetchers) -> None:
        self.leader = leader
        self._fetchers = fetchers
        self._followed: dict[Key, _Followed] = {}
        self._session: FetchSessionClient[Key, FetchPosition] = FetchSessionClient()
        self._wake = asyncio.Event()
        self._is_unreachable = False
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"fetcher of broker {leader}")
        self._task.add_done_callback(self._on_done)

    def __len__(self) -> int:
        return len(self._followed)

    def add(self, partition: Partition, state: FollowerState) -> None:
        followed = _Followed(partition, state)
        self._followed[partition.topic_id, partition.index] = followed
        self._perform(followed, state.start(position_of(partition.log)))
        self._wake.set()

    def remove(self, partition: Partition) -> None:
        self._followed.pop((partition.topic_id, partition.index), None)

    def wake(self) -> None:
        self._wake.set()

    async def stop(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            log.error("The fetcher of broker %d failed", self.leader, exc_info=task.exception())

    # --- the loop

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            now = monotonic_ms()
            asking = [one for one in self._followed.values() if one.state.wants_offsets(now)]
            if asking:
                await self._ask_offsets(asking)
                continue
            wanted = {key: one for key, one in self._followed.items() if one.state.wants_fetch(now)}
            if wanted:
                await self._fetch(wanted)
            else:
                await self._wait(now)

    async def _wait(self, now_ms: int) -> None:
        """For the first partition whose delay is over, or for one that is added."""
        waiting = [
            one.state.delayed_until_ms for one in self._followed.values() if one.state.phase is not FollowerPhase.FAILED
        ]
        timeout_s = (min(waiting) - now_ms) / 1000 if waiting else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()

    async def _fetch(self, wanted: Mapping[Key, _Followed]) -> None:
        positions = {key: one.state.position(position_of(one.partition.log)) for key, one in wanted.items()}
        asked = self._session.request(positions)
        try:
            response = await self._call(self._fetchers.fetch_request(asked))
        except CallFailed as error:
            self._session.reset()
            self._on_unreachable(wanted.values(), str(error))
            return
        assert isinstance(response, FetchResponse)
        self._is_unreachable = False
        self._session.on_response(response.session_id, response.error_code != ErrorCode.NONE)
        if response.error_code != ErrorCode.NONE:
            code = ErrorCode(response.error_code)
            if code not in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH):
                self._on_unreachable(wanted.values(), f"it refused the fetch with {code.name}")
            return
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                followed = wanted.get(key)
                # Its leader may have changed while the answer was on its way.
                if followed is not None and self._followed.get(key) is followed:
                    self._on_answer(followed, positions[key].offset, data)

    def _on_answer(self, followed: _Followed, asked_offset: int, data: PartitionData) -> None:
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

    def _on_unreachable(self, followed: Iterable[_Followed], reason: str) -> None:
        if not self._is_unreachable:
            log.warning("Broker %d cannot be fetched from: %s", self.leader, reason)
            self._is_unreachable = True
        now = monotonic_ms()
        for one in followed:
            one.state.delay(now, "")

    # --- steps

    def _perform(self, followed: _Followed, step: Step, records: bytes | memoryview | None = None) -> None:
        partition, state = followed
        try:
            if isinstance(step, Append):
                self._append(partition, step, records)
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

    def _append(self, partition: Partition, step: Append, records: bytes | memoryview | None) -> None:
        log_ = partition.log
        if records:
            log_.append_as_follower(memoryview(records))
        if log_.advance_high_watermark(step.high_watermark):
            partition.on_follower_progress()
        if log_.log_start_offset < step.log_start_offset <= log_.high_watermark:
            log_.advance_log_start(step.log_start_offset)

    # --- a follower outside the leader's log

    async def _ask_offsets(self, asking: list[_Followed]) -> None:
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
            if self._followed.get((one.partition.topic_id, one.partition.index)) is one:
                log_ = one.partition.log
                step = one.state.on_leader_offsets(position_of(log_), start, end)
                log.info(
                    "%s: [%d, %d) is outside the log of broker %d, [%d, %d)",
                    one.partition, log_.log_start_offset, log_.log_end_offset, self.leader, start, end,
                )  # fmt: skip
                self._perform(one, step)

    async def _leader_offset(self, followed: _Followed, which: int) -> int:
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
        return await self._fetchers.call(self.leader, request)


class ReplicaFetchers:
    """All fetchers of this broker, one per leader that any of its partitions follows."""

    def __init__(
        self, config: BrokerConfig, node_id: int, clients: NodeClients, broker_epoch: Callable[[], int]
    ) -> None:
        self.node_id = node_id
        self._config = config
        self._clients = clients
        self._broker_epoch = broker_epoch
        self._addresses: dict[int, tuple[str, int]] = {}
        self._fetchers: dict[int, LeaderFetcher] = {}
        self._states: dict[Key, FollowerState] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._stopped = False

    def on_brokers(self, image: MetadataImage) -> None:
        """Addresses of the other brokers, on the listener that brokers use among themselves."""
        name = self._config.inter_broker_listener_name
        self._addresses = {
            broker.id: (broker.endpoints[name].host, broker.endpoints[name].port)
            for broker in image.brokers.values()
            if name in broker.endpoints
        }
        for fetcher in self._fetchers.values():
            fetcher.wake()

    def on_partition(self, partition: Partition) -> None:
        """Follows the partition's leader from now on, if that is another broker and lives."""
        image = partition.image
        key = (partition.topic_id, partition.index)
        leader = -1 if image is None or self._stopped else image.leader
        state = self._states.get(key)
        wanted = None if image is None else (leader, image.leader_epoch)
        if state is not None and (state.leader, state.leader_epoch) == wanted:
            return
        self.remove(partition)
        if image is None or leader < 0 or leader == self.node_id:
            return
        state = self._states[key] = FollowerState(leader, image.leader_epoch, self._config.replica_fetch_backoff_ms)
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = LeaderFetcher(leader, self)
        fetcher.add(partition, state)

    def remove(self, partition: Partition) -> None:
        state = self._states.pop((partition.topic_id, partition.index), None)
        if state is None:
            return
        fetcher = self._fetchers[state.leader]
        fetcher.remove(partition)
        if not len(fetcher):
            del self._fetchers[state.leader]
            task = asyncio.get_running_loop().create_task(fetcher.stop())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def call(self, leader: int, request: Message) -> Message:
        address = self._addresses.get(leader)
        if address is None:
            raise CallFailed(f"broker {leader} has no listener {self._config.inter_broker_listener_name}")
        return await self._clients.call(*address, request, self._config.replica_socket_timeout_ms, lane=LANE)

    def fetch_request(self, asked: SessionRequest[Key, FetchPosition]) -> FetchRequest:
        config = self._config
        topics: dict[Uuid, FetchTopic] = {}
        for (topic_id, index), position in asked.changed.items():
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchTopic(topic_id=topic_id)
            topic.partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=position.leader_epoch,
                    fetch_offset=position.offset,
                    last_fetched_epoch=position.last_fetched_epoch,
                    log_start_offset=position.log_start_offset,
                    partition_max_bytes=config.replica_fetch_max_bytes,
                )
            )
        forgotten: dict[Uuid, ForgottenTopic] = {}
        for topic_id, index in asked.forgotten:
            forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(index)
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self.node_id, replica_epoch=self._broker_epoch()),
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=asked.session_id,
            session_epoch=asked.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )

    async def stop(self) -> None:
        """No log is written by a fetcher after this."""
        self._stopped = True
        fetchers, self._fetchers = self._fetchers, {}
        self._states.clear()
        await asyncio.gather(*(fetcher.stop() for fetcher in fetchers.values()), *self._ending)
