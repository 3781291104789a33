"""Fetch (1), versions 4 to 18.

4 isolation level · 5 log start offset · 7 sessions (KIP-227) · 9 leader epoch (KIP-320) · 11 rack (KIP-392) ·
12 flexible, diverging epochs (KIP-595) · 13 topic ids (KIP-516) · 15 replica state (KIP-903) ·
16 leader endpoints (KIP-951) · 17 directory ids (KIP-853) · 18 the replica's high watermark.
"""

from __future__ import annotations

import asyncio

from broker.api import Repetition, RequestContext, handler
from broker.clock import now_ms
from broker.endpoints import node_endpoint
from broker.fetch_sessions import FetchContext, FetchTarget
from broker.handlers.data.fetch_repeat import READ_COMMITTED, RepeatedFetch, Shape, shape_of
from broker.handlers.data.fetch_throttle import FetchThrottle
from broker.partition import NO_EPOCH, AppendWaiter, Partition
from broker.replication.cluster import monotonic_ms
from broker.replication.leader import LeaderState
from broker.replication.nearest import RACK_AWARE, nearest_replica
from broker.replication.throttle import ReplicationQuota
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from protocol.uuids import Uuid
from storage.errors import OffsetOutOfRange, StorageError
from storage.log import Log

FIRST_VERSION_WITH_RACK = 11
FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_REPLICA_STATE = 15
FIRST_VERSION_WITH_LEADER_ENDPOINTS = 16

_LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def shape(ctx: RequestContext, frame: memoryview, request: FetchRequest) -> Shape | None:
    if ctx.api_version < FIRST_VERSION_WITH_TOPIC_IDS or replica_of(ctx, request)[0] >= 0:
        return None
    if request.rack_id and ctx.broker.config.replica_selector_class == RACK_AWARE:
        return None  # it may have to be sent to a nearer replica
    return shape_of(frame, request, ctx.api_version)


def repeated(ctx: RequestContext, request: FetchRequest, shape: Shape) -> RepeatedFetch | None:
    topic_id, index = request.topics[0].topic_id, request.topics[0].partitions[0].partition
    session, target = None, None
    try:
        partition = ctx.broker.replicas.partition_by_id(topic_id, index)
    except ApiError:
        return None
    if request.session_id:
        session = ctx.broker.fetch_sessions.find(request.session_id)
        target = None if session is None else session.partitions.get((topic_id, index))
        if target is None:
            return None
    return RepeatedFetch(ctx, request, shape, partition, session, target)


@handler(FetchRequest, repetition=Repetition(shape, repeated))
def fetch(ctx: RequestContext, request: FetchRequest) -> FetchResponse | asyncio.Future[FetchResponse]:
    """Reads now; where there is less than the client wants, waits for appends until its deadline."""
    by_id = ctx.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    replica_id, _ = replica = replica_of(ctx, request)
    try:
        context = ctx.broker.fetch_sessions.open(request, by_id, now_ms(), privileged=replica_id >= 0)
    except ApiError as error:
        return FetchResponse(error_code=error.code)
    reading = _Reading(ctx, request, context, by_id, replica)
    answers, size, is_final = reading.read()
    reading.is_repeated = True
    if is_final or size >= reading.min_bytes or request.max_wait_ms <= 0:
        return reading.response(answers)
    return WaitingFetch(reading, size, request.max_wait_ms).future


def replica_of(ctx: RequestContext, request: FetchRequest) -> tuple[int, int]:
    """Broker id and broker epoch of a follower that fetches; -1 and -1 for a consumer."""
    if ctx.api_version >= FIRST_VERSION_WITH_REPLICA_STATE:
        return request.replica_state.replica_id, request.replica_state.replica_epoch
    return request.replica_id, -1


class _Reading:
    """Reads the partitions of one fetch, as often as it takes.

    A consumer reads what is committed, a follower all there is; and what a follower asks for says what it has.
    A session of a thousand partitions mostly has a few that are not idle. The others are neither read nor answered.
    """

    __slots__ = (
        "by_id",
        "committed",
        "context",
        "ctx",
        "is_repeated",
        "max_bytes",
        "min_bytes",
        "partitions",
        "rack",
        "replica_epoch",
        "replica_id",
        "throttle",
    )

    def __init__(
        self,
        ctx: RequestContext,
        request: FetchRequest,
        context: FetchContext,
        by_id: bool,
        replica: tuple[int, int],
    ) -> None:
        self.replica_id, self.replica_epoch = replica
        selects = ctx.broker.config.replica_selector_class == RACK_AWARE
        self.rack = request.rack_id if selects else ""
        self.is_repeated = False
        """Not the first look: the follower's offsets were taken in then, and say nothing about now."""
        self.ctx = ctx
        self.context = context
        self.by_id = by_id
        self.committed = request.isolation_level == READ_COMMITTED
        self.max_bytes = min(request.max_bytes, ctx.broker.config.fetch_max_bytes)
        self.min_bytes = min(request.min_bytes, self.max_bytes)
        self.partitions: list[Partition] = []
        self.throttle: FetchThrottle | None = None
        if context.session is not None:
            context.session.on_reader((replica, ctx.api_version, self.committed, self.rack))

    def read(self) -> tuple[list[tuple[FetchTarget, PartitionData]], int, bool]:
        """Answers, their bytes, and whether they must go out at once (an error, or nothing to wait for)."""
        answers: list[tuple[FetchTarget, PartitionData]] = []
        size = 0
        is_final = not self.context.targets
        self.partitions.clear()
        if self.throttle is not None:
            self.throttle.restart()
        left = self.max_bytes
        acknowledges = self.replica_id >= 0 and not self.is_repeated
        now = monotonic_ms() if acknowledges else 0
        for target in self.context.targets:
            idle = target.idle_partition()
            if idle is not None and (
                not acknowledges
                or idle.on_idle_fetch(
                    now, self.replica_id, self.replica_epoch, target.fetch_offset, target.replica_log_start_offset
                )
            ):
                self.partitions.append(idle)
                continue
            answer = self._read_one(target, left, is_first=size == 0)
            answers.append((target, answer))
            if answer.error_code or answer.diverging_epoch.epoch != NO_EPOCH or answer.preferred_read_replica >= 0:
                is_final = True
            elif answer.records:
                taken = len(answer.records)
                size += taken
                left = max(0, left - taken)
        return answers, size, is_final

    def _read_one(self, target: FetchTarget, left: int, is_first: bool) -> PartitionData:
        topic, index = target.key
        partition: Partition | None = None
        try:
            replicas = self.ctx.broker.replicas
            if isinstance(topic, Uuid):
                partition = replicas.partition_by_id(topic, index)
            else:
                partition = replicas.partition(topic, index)
            return self._read_partition(partition, target, left, is_first)
        except ApiError as error:
            return self._failed(index, partition, error.code)
        except OffsetOutOfRange:
            return self._failed(index, partition, ErrorCode.OFFSET_OUT_OF_RANGE)
        except StorageError:
            return self._failed(index, partition, ErrorCode.KAFKA_STORAGE_ERROR)

    def _read_partition(self, partition: Partition, target: FetchTarget, left: int, is_first: bool) -> PartitionData:
        if self.replica_id >= 0:
            partition.lead_or_raise(target.current_leader_epoch)
            return self._read_for_replica(partition, target, left, is_first)
        if self.ctx.api_version >= FIRST_VERSION_WITH_RACK:
            log = partition.read_or_raise(target.current_leader_epoch)
        else:
            log = partition.lead_or_raise(target.current_leader_epoch)
        high_watermark = log.high_watermark
        stable = log.last_stable_offset
        answer = PartitionData(
            partition_index=partition.index,
            high_watermark=high_watermark,
            last_stable_offset=stable,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if self.committed else None,
            records=b"",
        )
        diverging = _diverging_for_consumer(partition, target)
        if diverging is not None:
            answer.diverging_epoch = diverging
            return answer
        if self.rack and partition.leadership is not None:
            nearest = self._nearest(partition, partition.leadership, target.fetch_offset)
            if nearest != partition.node_id:
                answer.preferred_read_replica = nearest
                return answer
        self.partitions.append(partition)
        end = stable if self.committed else high_watermark
        found = log.read(
            target.fetch_offset,
            min(target.max_bytes, left),
            end_offset=end,
            min_one=is_first,
            isolation_committed=self.committed,
        )
        if target.fetch_offset >= end and not self.rack:
            target.on_idle(partition)
        if found.records is not None:
            answer.records = found.records
        if found.aborted:
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset) for txn in found.aborted
            ]
        return answer

    def _nearest(self, partition: Partition, leadership: LeaderState, fetch_offset: int) -> int:
        racks = {broker.id: broker.rack for broker in self.ctx.broker.image.unfenced_brokers}
        return nearest_replica(leadership, partition.node_id, racks, self.rack, fetch_offset)

    def _read_for_replica(self, partition: Partition, target: FetchTarget, left: int, is_first: bool) -> PartitionData:
        """To the end of the log. The high watermark goes out as the fetch itself has moved it."""
        log = partition.log
        answer = PartitionData(partition_index=partition.index, aborted_transactions=None, records=b"")
        diverging = _diverging_epoch(log, target)
        if diverging is not None:
            answer.diverging_epoch = diverging
        else:
            self.partitions.append(partition)
            found = log.read(
                target.fetch_offset, min(target.max_bytes, left), end_offset=log.log_end_offset, min_one=is_first
            )
            records, quota = found.records, partition.leader_quota
            if records is not None and (quota is None or self._may_send(partition, quota, len(records))):
                answer.records = records
            if not self.is_repeated:
                partition.on_replica_fetch(
                    self.replica_id, self.replica_epoch, target.fetch_offset, target.replica_log_start_offset
                )
            if target.fetch_offset == log.log_end_offset:
                target.on_idle(partition)
        answer.high_watermark = log.high_watermark
        answer.last_stable_offset = log.last_stable_offset
        answer.log_start_offset = log.log_start_offset
        return answer

    def _may_send(self, partition: Partition, quota: ReplicationQuota, size: int) -> bool:
        if self.throttle is None:
            self.throttle = FetchThrottle(quota)
        return self.throttle.may_send(partition, self.replica_id, size)

    def _failed(self, index: int, partition: Partition | None, code: ErrorCode) -> PartitionData:
        answer = PartitionData(
            partition_index=index,
            error_code=code,
            high_watermark=-1,
            aborted_transactions=[] if partition is None else None,  # null where the log itself refused, as in Kafka
            records=b"",
        )
        if code in _LEADER_ERRORS and partition is not None and partition.leader >= 0:
            answer.current_leader = LeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.leader_epoch)
        return answer

    def response(self, answers: list[tuple[FetchTarget, PartitionData]]) -> FetchResponse:
        response = FetchResponse(session_id=self.context.session_id)
        if self.throttle is not None:
            self.throttle.on_sent()
        topics: dict[str | Uuid, FetchableTopicResponse] = {}
        for target, answer in self.context.select(answers):
            name = target.key[0]
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = FetchableTopicResponse()
                if isinstance(name, Uuid):
                    topic.topic_id = name
                else:
                    topic.topic = name
                response.responses.append(topic)
            topic.partitions.append(answer)
            if answer.current_leader.leader_id >= 0:
                self._add_endpoint(response, answer.current_leader.leader_id)
        return response

    def _add_endpoint(self, response: FetchResponse, leader: int) -> None:
        if self.ctx.api_version < FIRST_VERSION_WITH_LEADER_ENDPOINTS:
            return
        endpoint = node_endpoint(self.ctx, leader)
        if endpoint is not None and all(node.node_id != leader for node in response.node_endpoints):
            response.node_endpoints.append(
                NodeEndpoint(node_id=leader, host=endpoint.host, port=endpoint.port, rack=endpoint.rack)
            )


def _diverging_epoch(log: Log, target: FetchTarget) -> EpochEndOffset | None:
    """Where the reader's log and this one part, if they do (KIP-595). OffsetOutOfRange if that cannot be said."""
    if target.last_fetched_epoch == NO_EPOCH:
        return None
    epoch, end_offset = log.end_offset_for_epoch(target.last_fetched_epoch)
    if epoch == NO_EPOCH or target.fetch_offset < log.log_start_offset:
        raise OffsetOutOfRange(target.fetch_offset, log.log_start_offset, log.log_end_offset)
    if epoch < target.last_fetched_epoch or end_offset < target.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


def _diverging_for_consumer(partition: Partition, target: FetchTarget) -> EpochEndOffset | None:
    """Only the leader knows where an epoch ended. A follower that is behind ends earlier, and a consumer that took its
    word for it would read again what it has read, or give up. It is sent back to the leader instead: Kafka's clients
    go there when a follower answers OFFSET_OUT_OF_RANGE (KIP-392)."""
    log = partition.log
    diverging = _diverging_epoch(log, target)
    if diverging is not None and partition.leader != partition.node_id:
        raise OffsetOutOfRange(target.fetch_offset, log.log_start_offset, log.log_end_offset)
    return diverging


class WaitingFetch:
    """A fetch on long poll. Counts what is appended to its partitions and answers when that is enough.

    Owned by the partitions it waits on and by its timer; it leaves all of them when it is done, and also when
    the connection goes away, which cancels the future. What is appended to a throttled partition does not count; when
    the quota has room again, it looks once more.

    It looks at the end of the turn of the loop in which there was news: what is appended meanwhile, to other partitions
    and by other producers, goes into the same answer.
    """

    __slots__ = ("_is_looking", "_quota_timer", "_reading", "_size", "_timer", "_waiters", "future")

    def __init__(self, reading: _Reading, size: int, max_wait_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self._reading = reading
        self._size = size
        self._is_looking = False
        self._waiters: list[set[AppendWaiter]] = [
            partition.waiters if reading.replica_id < 0 else partition.replica_waiters
            for partition in reading.partitions
        ]
        self.future: asyncio.Future[FetchResponse] = loop.create_future()
        self._timer = loop.call_later(max_wait_ms / 1000, self._try_answer, True)
        self._quota_timer: asyncio.TimerHandle | None = None
        self.future.add_done_callback(self._leave)
        for waiters in self._waiters:
            waiters.add(self)
        self._maybe_wait_for_quota()

    def on_append(self, partition: Partition, size: int) -> None:
        throttle = self._reading.throttle
        if throttle is not None and partition in throttle.held:
            return
        self._size += size
        if self._size >= self._reading.min_bytes:
            self._look_soon()

    def on_progress(self, partition: Partition) -> None:
        """More is committed; how many bytes that are, only a look can tell."""
        self._look_soon()

    def _look_soon(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            self.future.get_loop().call_soon(self._try_answer, False)

    def on_gone(self, partition: Partition) -> None:
        self._try_answer(is_due=True)

    def _try_answer(self, is_due: bool) -> None:
        self._is_looking = False
        if self.future.done():
            return
        answers, size, is_final = self._reading.read()
        if is_due or is_final or size >= self._reading.min_bytes:
            self.future.set_result(self._reading.response(answers))
        else:
            self._size = size  # some of what was counted is not for this reader yet (an open transaction)
            self._maybe_wait_for_quota()

    def _maybe_wait_for_quota(self) -> None:
        throttle = self._reading.throttle
        if self._quota_timer is not None:
            self._quota_timer.cancel()
            self._quota_timer = None
        if throttle is not None and throttle.held:
            loop = asyncio.get_running_loop()
            self._quota_timer = loop.call_later(throttle.delay_ms() / 1000, self._try_answer, False)

    def _leave(self, _: asyncio.Future[FetchResponse]) -> None:
        self._timer.cancel()
        if self._quota_timer is not None:
            self._quota_timer.cancel()
        for waiters in self._waiters:
            waiters.discard(self)
