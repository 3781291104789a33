"""One partition as this broker sees it: its log, who leads it, and the fetches that wait for it to grow."""

from __future__ import annotations

from typing import Protocol

from controller.image import PartitionImage
from protocol.errors import ApiError, ErrorCode
from protocol.uuids import Uuid
from storage.log import Log
from storage.results import AppendOrigin, AppendResult

NO_EPOCH = -1


class AppendWaiter(Protocol):
    """Someone to be told of new records: a long-polling fetch."""

    def on_append(self, partition: Partition, size: int) -> None: ...

    def on_gone(self, partition: Partition) -> None: ...


class Partition:
    """Owned by the ReplicaManager, and changed only on the event loop.

    The high watermark is the log's. With one replica every append is committed at once; with more, it will be
    advanced by what the followers fetch, and nothing above this class changes.
    """

    __slots__ = ("commits_at_once", "image", "index", "log", "node_id", "topic", "topic_id", "waiters")

    def __init__(self, topic: str, index: int, topic_id: Uuid, node_id: int, log: Log) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.node_id = node_id
        self.log = log
        self.image: PartitionImage | None = None
        self.commits_at_once = False
        """This broker leads and is the whole ISR: what is appended needs nobody's acknowledgement."""
        self.waiters: set[AppendWaiter] = set()

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def leader_epoch(self) -> int:
        return NO_EPOCH if self.image is None else self.image.leader_epoch

    @property
    def leader(self) -> int:
        return -1 if self.image is None else self.image.leader

    def on_image(self, image: PartitionImage) -> None:
        """Takes over what the controller decided. A new leader opens its epoch at the end of its log."""
        old, self.image = self.image, image
        self.commits_at_once = image.leader == self.node_id and image.isr == (self.node_id,)
        if image.leader != self.node_id:
            return
        if old is None or old.leader_epoch != image.leader_epoch:
            self.log.leader_epochs.assign(image.leader_epoch, self.log.log_end_offset)
        self._maybe_advance_high_watermark()

    def lead_or_raise(self, current_leader_epoch: int = NO_EPOCH) -> Log:
        """The log, if this broker leads the partition and the client does not follow another epoch (KIP-320)."""
        image = self.image
        if image is None or image.leader != self.node_id:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if current_leader_epoch != NO_EPOCH:
            if current_leader_epoch < image.leader_epoch:
                raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
            if current_leader_epoch > image.leader_epoch:
                raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        return self.log

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
        if acks == -1 and len(image.isr) < log.config.min_insync_replicas:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR : {len(image.isr)} is insufficient to satisfy the min.isr "
                f"requirement of {log.config.min_insync_replicas} for partition {self}",
            )
        result = log.append_as_leader(records, leader_epoch=image.leader_epoch, now_ms=now_ms, origin=origin)
        if not result.duplicate:
            self._maybe_advance_high_watermark()
            if self.waiters:
                size = len(records)
                for waiter in tuple(self.waiters):
                    waiter.on_append(self, size)
        return result

    def _maybe_advance_high_watermark(self) -> None:
        if self.commits_at_once:
            self.log.advance_high_watermark(self.log.log_end_offset)

    def on_gone(self) -> None:
        """Deleted, or its disk failed: fetches that wait on it are answered now, not at their deadline."""
        self.image = None
        self.commits_at_once = False
        waiters, self.waiters = self.waiters, set()
        for waiter in waiters:
            waiter.on_gone(self)
