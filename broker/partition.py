"""One partition as this broker sees it: its log, who leads it, and those who wait for it to grow."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from broker.clock import now_ms as wall_clock_ms
from broker.replication.cluster import ClusterView
from broker.replication.commits import CommitQueue, OnCommitted
from broker.replication.leader import IsrChange, IsrResult, LeaderState, StaleBrokerEpoch, UnknownReplica
from broker.replication.throttle import ReplicationQuota
from controller.image import PartitionImage
from protocol.errors import ApiError, ErrorCode
from protocol.uuids import Uuid
from storage.errors import StorageError
from storage.log import Log
from storage.results import AppendOrigin, AppendResult

NO_EPOCH = -1

log_ = logging.getLogger("broker.partition")


class AppendWaiter(Protocol):
    """Someone to be told of new records: a long-polling fetch."""

    def on_append(self, partition: Partition, size: int) -> None: ...

    def on_progress(self, partition: Partition) -> None: ...

    def on_gone(self, partition: Partition) -> None: ...


class Partition:
    """Owned by the ReplicaManager, and changed only on the event loop.

    The high watermark is the log's. With one replica every append is committed at once, and nothing else happens; with
    more, `leadership` says what is committed as the followers fetch. A follower has no leadership: its log is written
    by the fetcher of its leader.
    """

    __slots__ = (
        "_cluster",
        "_commits",
        "_deletions",
        "_syncing",
        "commits_at_once",
        "follower_quota",
        "image",
        "index",
        "leader_quota",
        "leadership",
        "log",
        "node_id",
        "replica_waiters",
        "topic",
        "topic_id",
        "waiters",
    )

    def __init__(
        self, topic: str, index: int, topic_id: Uuid, node_id: int, log: Log, cluster: ClusterView | None = None
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.node_id = node_id
        self.log = log
        self.image: PartitionImage | None = None
        self.leadership: LeaderState | None = None
        """Set while this broker leads a partition with more replicas than its own."""
        self.commits_at_once = False
        """This broker leads and has the only replica: what is appended needs nobody's acknowledgement."""
        self.waiters: set[AppendWaiter] = set()
        """Consumers, woken when the high watermark moves."""
        self.replica_waiters: set[AppendWaiter] = set()
        """Followers, woken when the log grows."""
        self.leader_quota: ReplicationQuota | None = None
        """Set while the topic names this replica as throttled: what followers that are not in sync may read of it."""
        self.follower_quota: ReplicationQuota | None = None
        """The same for what it reads as a follower."""
        self._cluster = cluster
        self._commits = CommitQueue()
        self._deletions = CommitQueue()
        self._syncing: asyncio.Task[None] | None = None
        """`flush.messages` is due: until it is done nothing is committed that this broker's disk does not have."""

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def leader_epoch(self) -> int:
        return NO_EPOCH if self.image is None else self.image.leader_epoch

    @property
    def leader(self) -> int:
        return -1 if self.image is None else self.image.leader

    @property
    def epoch_start_offset(self) -> int:
        """Where the leader's epoch began. Until all below is committed, the old leader may have shown clients more."""
        return 0 if self.leadership is None else self.leadership.epoch_start_offset

    # --- roles

    def on_image(self, image: PartitionImage) -> None:
        """Takes over what the controller decided."""
        old, self.image = self.image, image
        if image.leader == self.node_id:
            self._become_leader(old, image)
        else:
            self.leadership = None
            self.commits_at_once = False
            if old is not None and old.leader == self.node_id:
                self._commits.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                self._deletions.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if old is not None and (old.leader, old.leader_epoch) != (image.leader, image.leader_epoch):
            self._wake_all()

    def _become_leader(self, old: PartitionImage | None, image: PartitionImage) -> None:
        """A new leader opens its epoch at the end of its log."""
        log = self.log
        if old is None or old.leader != image.leader or old.leader_epoch != image.leader_epoch:
            log.leader_epochs.assign(image.leader_epoch, log.log_end_offset)
        self.commits_at_once = image.replicas == (self.node_id,)
        if self.commits_at_once:
            self.leadership = None
        else:
            cluster = self._cluster_or_raise()
            if self.leadership is None:
                self.leadership = LeaderState(self.node_id, cluster.lag_max_ms)
            self.leadership.on_metadata(
                cluster.clock(),
                replicas=image.replicas,
                isr=image.isr,
                leader_epoch=image.leader_epoch,
                partition_epoch=image.partition_epoch,
                log_end_offset=log.log_end_offset,
            )
        self._maybe_commit()

    def _cluster_or_raise(self) -> ClusterView:
        if self._cluster is None:
            raise RuntimeError(f"{self} has several replicas, but knows no other brokers")
        return self._cluster

    def lead_or_raise(self, current_leader_epoch: int = NO_EPOCH) -> Log:
        """The log, if this broker leads the partition and the client does not follow another epoch (KIP-320)."""
        image = self.image
        if image is None or image.leader != self.node_id:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if current_leader_epoch != NO_EPOCH:
            _check_epoch(current_leader_epoch, image.leader_epoch)
        return self.log

    def read_or_raise(self, current_leader_epoch: int = NO_EPOCH) -> Log:
        """The log, for a consumer that may read from any replica (KIP-392): a follower serves what it knows to be
        committed. A consumer that says which leader epoch it knows is not left to miss a truncation."""
        image = self.image
        if image is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if current_leader_epoch != NO_EPOCH:
            _check_epoch(current_leader_epoch, image.leader_epoch)
        return self.log

    def on_follower_progress(self) -> None:
        """As follower: the leader has told of more that is committed."""
        for waiter in tuple(self.waiters):
            waiter.on_progress(self)

    # --- appending

    def append(
        self,
        records: memoryview,
        now_ms: int,
        *,
        acks: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendResult:
        """Appends as leader, commits as far as the in-sync replicas allow, and wakes waiting fetches."""
        log = self.lead_or_raise()
        image = self.image
        assert image is not None
        if acks == -1 and self.leadership is not None:
            self._check_min_isr(self.leadership)
        result = log.append_as_leader(records, leader_epoch=image.leader_epoch, now_ms=now_ms, origin=origin)
        if result.duplicate:
            return result
        must_sync = log.rules.flushes and self._must_sync(now_ms)
        if self.commits_at_once and not must_sync:
            log.advance_high_watermark(log.log_end_offset)
            if self.waiters:
                size = len(records)
                for waiter in tuple(self.waiters):
                    waiter.on_append(self, size)
        else:
            for waiter in tuple(self.replica_waiters):
                waiter.on_append(self, len(records))
            self._maybe_commit()
        return result

    def _must_sync(self, now_ms: int) -> bool:
        """Whether what was appended may not be shown yet. Then it is on its way to the disk, whoever waits for it."""
        if (self._syncing is None or self._syncing.done()) and self.log.needs_flush(now_ms):
            self._syncing = asyncio.get_running_loop().create_task(self._sync_then_commit(), name=f"sync of {self}")
        return self._syncing is not None

    async def _sync_then_commit(self) -> None:
        try:
            while self.log.needs_flush(wall_clock_ms()):
                await self.log.flush()
                self._maybe_commit()
        except Exception as error:  # mostly its directory is offline, and the partition with it
            log_.error("%s: %s", self, error, exc_info=None if isinstance(error, StorageError) else error)
            self._commits.fail(ErrorCode.KAFKA_STORAGE_ERROR)
            return  # `_syncing` stays: nothing is committed before another sync has succeeded
        self._syncing = None
        self._maybe_commit()

    @property
    def is_below_min_isr(self) -> bool:
        """Fewer replicas are in sync than the topic demands, so nothing is committed for the time being."""
        leadership = self.leadership
        return leadership is not None and len(leadership.isr) < leadership.effective_min_isr(
            self.log.config.min_insync_replicas
        )

    def _check_min_isr(self, leadership: LeaderState) -> None:
        if self.is_below_min_isr:
            needed = leadership.effective_min_isr(self.log.config.min_insync_replicas)
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR : {len(leadership.isr)} is insufficient to satisfy the min.isr "
                f"requirement of {needed} for partition {self}, "
                f"live replica(s) broker.id are : {', '.join(map(str, sorted(leadership.isr)))}",
            )

    def when_committed(self, end_offset: int, on_committed: OnCommitted) -> None:
        """Calls back when all below `end_offset` is committed, at once if it is, or when that is not for us to say."""
        if self.image is None or self.image.leader != self.node_id:
            on_committed(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self.log.high_watermark >= end_offset:
            on_committed(self._commit_outcome())
        elif not self.log.log_dir.online:
            on_committed(ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            self._commits.add(end_offset, on_committed)
            if self.log.rules.flushes:
                self._must_sync(wall_clock_ms())

    def _commit_outcome(self) -> ErrorCode:
        """Committed by fewer replicas than the topic demands, if the ISR shrank after the append."""
        leadership = self.leadership
        if leadership is None:
            return ErrorCode.NONE
        needed = leadership.effective_min_isr(self.log.config.min_insync_replicas)
        enough = len(leadership.maximal_isr) >= needed
        return ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def _maybe_commit(self) -> None:
        """As leader: advances the high watermark as far as the in-sync replicas allow."""
        log, leadership = self.log, self.leadership
        end = log.log_end_offset if self._syncing is None else log.recovery_point
        if leadership is None and not self.commits_at_once:
            return
        if leadership is not None:
            cluster = self._cluster_or_raise()
            end = leadership.committed_offset(cluster.clock(), end, cluster.eligible, log.config.min_insync_replicas)
        if log.advance_high_watermark(end):
            if len(self._commits):
                self._commits.release(log.high_watermark, self._commit_outcome())
            for waiter in tuple(self.waiters):
                waiter.on_progress(self)

    # --- followers of this leader

    def on_replica_fetch(self, replica_id: int, broker_epoch: int, fetch_offset: int, log_start_offset: int) -> None:
        """A follower has everything below `fetch_offset`. ApiError for one that is none, or no longer lives."""
        leadership = self.leadership
        if leadership is None:
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        cluster = self._cluster_or_raise()
        log = self.log
        try:
            moved = leadership.on_fetch(
                cluster.clock(),
                replica_id,
                broker_epoch=broker_epoch,
                fetch_offset=fetch_offset,
                log_start_offset=log_start_offset,
                log_end_offset=log.log_end_offset,
            )
        except UnknownReplica:
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH) from None  # it knows of a reassignment before we do
        except StaleBrokerEpoch as error:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error)) from None
        change = None
        if replica_id not in leadership.isr:
            change = leadership.maybe_expand(replica_id, log.high_watermark, cluster.eligible, cluster.broker_epoch)
            if change is not None:
                cluster.isr_updates.submit(self, change)
        if moved or change is not None:
            self._maybe_commit()
        if len(self._deletions):
            self._deletions.release(self.low_watermark, ErrorCode.NONE)

    def on_idle_fetch(
        self, now_ms: int, replica_id: int, broker_epoch: int, fetch_offset: int, log_start_offset: int
    ) -> bool:
        """The same, shorter, where the log end has not moved since the follower's last fetch, and it is level. False,
        and nothing is done, if more than the time of the fetch is new."""
        leadership = self.leadership
        return leadership is not None and leadership.on_idle_fetch(
            now_ms, replica_id, broker_epoch, fetch_offset, log_start_offset
        )

    def on_throttle(self, leader_quota: ReplicationQuota | None, follower_quota: ReplicationQuota | None) -> None:
        """Other quotas, or other rates of theirs: followers that were held may read more now."""
        was_held = self.leader_quota is not None
        self.leader_quota, self.follower_quota = leader_quota, follower_quota
        if was_held:
            for waiter in tuple(self.replica_waiters):
                waiter.on_progress(self)

    def is_in_sync(self, replica_id: int) -> bool:
        return self.leadership is not None and replica_id in self.leadership.isr

    @property
    def low_watermark(self) -> int:
        """Below it no replica that lives has records any more."""
        start = self.log.log_start_offset
        if self.leadership is None:
            return start
        eligible = self._cluster_or_raise().eligible
        alive = (f.log_start_offset for f in self.leadership.followers.values() if f.broker_id in eligible)
        return min([start, *alive])

    def when_deleted(self, offset: int, on_deleted: OnCommitted) -> None:
        """Calls back when all replicas that live have forgotten what is below `offset`."""
        if self.low_watermark >= offset:
            on_deleted(ErrorCode.NONE)
        else:
            self._deletions.add(offset, on_deleted)

    def maybe_shrink_isr(self) -> None:
        """Asks the controller to take followers out of the ISR that have not been level for too long."""
        leadership = self.leadership
        if leadership is None:
            return
        cluster = self._cluster_or_raise()
        change = leadership.maybe_shrink(cluster.clock(), self.log.log_end_offset, cluster.broker_epoch)
        if change is not None:
            gone = sorted(leadership.isr - set(change.broker_ids))
            log_.info("%s: brokers %s lag behind and are to leave the in-sync set", self, gone)
            cluster.isr_updates.submit(self, change)

    def on_cluster_change(self) -> None:
        """Brokers came or went, time has passed, or `min.insync.replicas` is another: more may be committed now."""
        if self.leadership is not None:
            self._maybe_commit()
            self._deletions.release(self.low_watermark, ErrorCode.NONE)

    def awaits(self, change: IsrChange) -> bool:
        """Whether the change still is what this leader waits for."""
        return self.leadership is not None and self.leadership.pending is change

    def on_isr_result(self, change: IsrChange, result: IsrResult) -> None:
        if self.leadership is not None and self.leadership.on_result(change, result):
            self._maybe_commit()

    def on_isr_refused(self, change: IsrChange) -> None:
        if self.leadership is not None:
            self.leadership.on_not_attempted(change)
            self._maybe_commit()

    # --- the end

    def on_log_moved(self, log: Log) -> None:
        """Another log directory holds the replica from now on; the log there has the same records."""
        latest, self.log = self.log.leader_epochs.latest_entry, log
        known = log.leader_epochs.latest_epoch
        if latest is not None and (known is None or latest.epoch > known):  # an epoch in which nothing was written yet
            log.leader_epochs.assign(*latest)

    def on_gone(self) -> None:
        """Deleted, or its disk failed: those who wait on it are answered now, not at their deadline."""
        self.image = None
        self.leadership = None
        self.commits_at_once = False
        self._commits.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._deletions.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._wake_all()

    def _wake_all(self) -> None:
        """Answers every waiting fetch with what is true now: another leader, another epoch, an error."""
        for waiter in (*self.waiters, *self.replica_waiters):
            waiter.on_gone(self)


def _check_epoch(known: int, leader_epoch: int) -> None:
    """Whoever names an epoch follows that leader and no other (KIP-320)."""
    if known < leader_epoch:
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
    if known > leader_epoch:
        raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)
