"""Incremental fetch sessions (KIP-227): the broker remembers what a client fetches, the client sends changes.

A session is an ordered map of partitions. Partitions that just returned data move to its end, so that with a
byte limit every partition gets its turn. The cache is bounded; a session that has not been used for two minutes,
or a smaller one than the newcomer's, makes room.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData
from protocol.uuids import Uuid

if TYPE_CHECKING:
    from broker.partition import Partition
    from controller.image import PartitionImage
    from storage.log import Log

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1

# After this time without use a session may be evicted by any other; Kafka's fixed value.
EVICTION_MS = 120_000

# A partition is known by name before version 13 and by topic id from there on.
TopicKey = str | Uuid
PartitionKey = tuple[TopicKey, int]


class Idle(NamedTuple):
    """A partition as it was when there was nothing in it to read. It cannot have an answer before it looks otherwise:
    who may read it, and from when, is in the image; what there is to read, between the offsets."""

    partition: Partition
    image: PartitionImage | None
    log: Log
    log_end_offset: int
    high_watermark: int
    log_start_offset: int


class FetchTarget:
    """One partition to read, with what the client last knew of it."""

    __slots__ = (
        "_idle",
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "replica_log_start_offset",
    )

    def __init__(self, topic: TopicKey, request: FetchPartition) -> None:
        self.key: PartitionKey = (topic, request.partition)
        self.high_watermark = -1
        self.log_start_offset = -1
        self.update(request)

    def update(self, request: FetchPartition) -> None:
        self.fetch_offset = request.fetch_offset
        self.max_bytes = request.partition_max_bytes
        self.current_leader_epoch = request.current_leader_epoch
        self.last_fetched_epoch = request.last_fetched_epoch
        self.replica_log_start_offset = request.log_start_offset
        self._idle: Idle | None = None

    def on_idle(self, partition: Partition) -> None:
        """There is nothing to read from `fetch_offset` on, and no error."""
        log = partition.log
        self._idle = Idle(partition, partition.image, log, log.log_end_offset, log.high_watermark, log.log_start_offset)

    def forget_idle(self) -> None:
        self._idle = None

    def idle_partition(self) -> Partition | None:
        """The partition, if there still is nothing to read in it and nothing else that the client has not been told."""
        idle = self._idle
        if idle is None:
            return None
        partition, image, log, end, high_watermark, start = idle
        if (
            log.log_end_offset == end
            and log.high_watermark == high_watermark == self.high_watermark
            and log.log_start_offset == start == self.log_start_offset
            and partition.image is image
            and partition.log is log
        ):
            return partition
        return None

    def on_answer(self, wanted: FetchPartition, fetch_offset: int, high_watermark: int, log_start_offset: int) -> None:
        """What is wanted was sent from `fetch_offset` on, together with these."""
        self.update(wanted)
        self.fetch_offset = fetch_offset
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset

    def is_worth_sending(self, answer: PartitionData) -> bool:
        """Whether an incremental response has to name this partition; remembers what it says."""
        changed = (
            bool(answer.records)
            or answer.error_code != 0
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
            or answer.preferred_read_replica != -1
            or answer.diverging_epoch.epoch != -1
        )
        if answer.error_code:
            # Told again when it is well, even if the watermark is where it was.
            self.high_watermark = -1
        else:
            self.high_watermark = answer.high_watermark
            self.log_start_offset = answer.log_start_offset
        return changed


class FetchSession:
    __slots__ = ("_reader", "by_id", "created_ms", "epoch", "id", "last_used_ms", "partitions", "privileged")

    def __init__(self, session_id: int, by_id: bool, privileged: bool, now_ms: int) -> None:
        self.id = session_id
        self.by_id = by_id
        self.privileged = privileged
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.partitions: OrderedDict[PartitionKey, FetchTarget] = OrderedDict()
        self._reader: Hashable = None

    def on_reader(self, reader: Hashable) -> None:
        """Who reads, and how. What was idle for one need not be so for another."""
        if reader != self._reader:
            self._reader = reader
            for target in self.partitions.values():
                target.forget_idle()

    def change(self, request: FetchRequest) -> None:
        for key, wanted in _requested(request, self.by_id):
            target = self.partitions.get(key)
            if target is None:
                self.partitions[key] = FetchTarget(key[0], wanted)
            else:
                target.update(wanted)
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                self.partitions.pop((topic.topic_id if self.by_id else topic.topic, index), None)

    def on_data(self, keys: Iterable[PartitionKey]) -> None:
        for key in keys:
            if key in self.partitions:
                self.partitions.move_to_end(key)


def next_epoch(epoch: int) -> int:
    """Epochs run from 1 up and skip 0 and -1, which have a meaning, when they wrap."""
    return 1 if epoch == 0x7FFFFFFF else epoch + 1


def _requested(request: FetchRequest, by_id: bool) -> Iterator[tuple[PartitionKey, FetchPartition]]:
    for topic in request.topics:
        name: TopicKey = topic.topic_id if by_id else topic.topic
        for partition in topic.partitions:
            yield (name, partition.partition), partition


class FetchContext:
    """What one request wants read, and the session (if any) that filters its answer."""

    __slots__ = ("incremental", "session", "session_id", "targets")

    def __init__(
        self, targets: list[FetchTarget], session: FetchSession | None = None, incremental: bool = False
    ) -> None:
        self.targets = targets
        self.session = session
        self.incremental = incremental
        self.session_id = NO_SESSION if session is None else session.id

    def select(self, answers: list[tuple[FetchTarget, PartitionData]]) -> list[tuple[FetchTarget, PartitionData]]:
        """The partitions to send: all of a full fetch, those with news of an incremental one."""
        if self.session is None:
            return answers
        with_news = [pair for pair in answers if pair[0].is_worth_sending(pair[1])]
        self.session.on_data([target.key for target, answer in answers if answer.records])
        return with_news if self.incremental else answers


class FetchSessionCache:
    def __init__(self, max_sessions: int, rng: random.Random | None = None) -> None:
        self.max_sessions = max_sessions
        self._rng = rng or random.Random()
        # Least recently used first.
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def holds(self, session: FetchSession) -> bool:
        """Whether the session has not been evicted or replaced."""
        return self._sessions.get(session.id) is session

    def on_next(self, session: FetchSession, now_ms: int) -> None:
        """The client took the next step of its session."""
        session.epoch = next_epoch(session.epoch)
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session.id)

    def open(self, request: FetchRequest, by_id: bool, now_ms: int, *, privileged: bool = False) -> FetchContext:
        """The context of a request; `privileged` if a follower's. ApiError for a session gone or out of step."""
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            session = None
            if request.session_epoch == INITIAL_EPOCH:
                session = self._create(request, by_id, now_ms, privileged)
            if session is not None:
                return FetchContext(list(session.partitions.values()), session)
            targets = {key: FetchTarget(key[0], wanted) for key, wanted in _requested(request, by_id)}
            return FetchContext(list(targets.values()))
        return self._resume(request, by_id, now_ms)

    def _resume(self, request: FetchRequest, by_id: bool, now_ms: int) -> FetchContext:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.change(request)
        self.on_next(session, now_ms)
        if not session.partitions:
            # Nothing left to fetch: the client is told session 0 and starts anew when it wants more.
            del self._sessions[session.id]
            return FetchContext([])
        return FetchContext(list(session.partitions.values()), session, incremental=True)

    def _create(self, request: FetchRequest, by_id: bool, now_ms: int, privileged: bool) -> FetchSession | None:
        """A new session, or none when the cache is full of sessions with a better claim."""
        session = FetchSession(self._new_id(), by_id, privileged, now_ms)
        session.change(request)
        if not self._make_room(len(session.partitions), now_ms, privileged):
            return None
        self._sessions[session.id] = session
        return session

    def _make_room(self, size: int, now_ms: int, privileged: bool) -> bool:
        if len(self._sessions) < self.max_sessions:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            del self._sessions[oldest.id]
            return True
        # Only one that had its time may lose its place to a larger one, or sessions would only thrash. A follower
        # need not wait for that with consumers: replication comes first.
        candidates = [
            session
            for session in self._sessions.values()
            if now_ms - session.created_ms > EVICTION_MS or (privileged and not session.privileged)
        ]
        weakest = min(candidates, key=lambda s: (s.privileged, len(s.partitions)), default=None)
        if weakest is None or (weakest.privileged, len(weakest.partitions)) >= (privileged, size):
            return False
        del self._sessions[weakest.id]
        return True

    def _new_id(self) -> int:
        while True:
            session_id = self._rng.randint(1, 0x7FFFFFFF)
            if session_id not in self._sessions:
                return session_id
