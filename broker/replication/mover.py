"""Moves replicas between the log directories of this broker: the shell around `move.py`.

At most `num.replica.alter.log.dirs.threads` replicas are copied at a time, in the order of their names, each by a task
of its own until it has arrived. Records are read in a thread, a slice at a time, and appended on the loop; all moves
together keep to `replica.alter.log.dirs.io.max.bytes.per.second`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.replication.cluster import monotonic_ms
from broker.replication.move import (
    Ask,
    ChangePlaces,
    Copy,
    Cut,
    Flush,
    LogEnds,
    LogHistory,
    MovePhase,
    MoveStep,
    ReplicaMove,
    Restart,
    common_end,
)
from broker.replication.throttle import ReplicationQuota
from config.broker import BrokerConfig
from protocol.errors import ApiError
from protocol.uuids import Uuid
from storage.errors import OffsetOutOfRange, StorageError, UnexpectedAppendOffset
from storage.log_directory import LogDirectory
from storage.log_manager import LogManager

if TYPE_CHECKING:
    from broker.partition import Partition
    from storage.log import Log

log = logging.getLogger(__name__)

SLICE_BYTES: Final = 256 * 1024
"""Read at once: its checks and its append hold the loop for less than a millisecond."""

Key = tuple[str, int]
Assign = Callable[[tuple[Uuid, int], Uuid], None]
"""Tell the controller that a replica is in a directory, or is about to be."""


class _Move:
    """One replica on its way."""

    __slots__ = ("cuts", "future", "partition", "state", "task", "wake")

    def __init__(self, partition: Partition, future: Log, state: ReplicaMove) -> None:
        self.partition = partition
        self.future = future
        self.state = state
        self.cuts = 0
        """Truncations of the current log: what was read before one is void."""
        self.wake = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    @property
    def key(self) -> Key:
        return self.partition.topic, self.partition.index

    @property
    def replica(self) -> tuple[Uuid, int]:
        return self.partition.topic_id, self.partition.index

    def next_step(self) -> MoveStep:
        return self.state.next_step(_ends(self.partition.log), _ends(self.future))

    def on_truncated(self, offset: int, fully: bool) -> None:
        """The current log was cut: at once, so that the two never differ below the end of the shorter."""
        self.cuts += 1
        try:
            if fully:
                self.future.truncate_fully_and_start_at(offset)
            else:
                self.future.truncate_to(offset)
        except StorageError as error:  # its directory is offline now, and the move about to end
            log.error("%s: the future log cannot be truncated: %s", self.partition, error)


def _ends(log_: Log) -> LogEnds:
    return LogEnds(log_.log_start_offset, log_.log_end_offset, log_.recovery_point)


def history_of(log_: Log) -> LogHistory:
    return LogHistory(log_.leader_epochs.entries, log_.log_end_offset)


class ReplicaMover:
    """Owns every move; the replica manager begins and ends them, on the loop."""

    def __init__(self, config: BrokerConfig, logs: LogManager, assign: Assign) -> None:
        self._logs = logs
        self._assign = assign
        self._limit = config.num_replica_alter_log_dirs_threads
        self._backoff_s = config.replica_fetch_backoff_ms / 1000
        self._quota = ReplicationQuota(
            config.alter_log_dirs_replication_quota_window_num,
            config.alter_log_dirs_replication_quota_window_size_seconds,
            config.replica_alter_log_dirs_io_max_bytes_per_second,
        )
        self._moves: dict[Key, _Move] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False

    def on_config(self, config: BrokerConfig) -> None:
        """A new rate holds at once, for those too that wait under the old one."""
        rate = config.replica_alter_log_dirs_io_max_bytes_per_second
        if rate != self._quota.rate:
            self._quota.update(rate)
            for move in self._moves.values():
                move.wake.set()

    # --- the life of a move

    def target_of(self, partition: Partition) -> LogDirectory | None:
        """Where the replica is going."""
        move = self._moves.get((partition.topic, partition.index))
        return None if move is None else move.future.log_dir

    def may_be_assigned(self, partition: Partition) -> bool:
        """Whether the metadata names the directory to which the replica moves, or may do so soon."""
        move = self._moves.get((partition.topic, partition.index))
        return move is not None and move.state.may_be_assigned

    def begin(self, partition: Partition, directory: LogDirectory) -> None:
        """Raises StorageError if the directory does not take the replica."""
        future = self._logs.create_future(partition.log, directory)
        log.info("%s moves from %s to %s", partition, partition.log.log_dir.path, directory.path)
        self._add(_Move(partition, future, ReplicaMove()))

    def resume(self, partition: Partition, future: Log, *, is_assigned: bool) -> None:
        """After a restart: what the two logs have in common stays. Raises StorageError."""
        end = common_end(history_of(partition.log), history_of(future))
        if end is None:
            future.truncate_fully_and_start_at(partition.log.log_start_offset)
        else:
            future.truncate_to(end)
        log.info(
            "%s goes on moving from %s to %s at offset %d",
            partition, partition.log.log_dir.path, future.log_dir.path, future.log_end_offset,
        )  # fmt: skip
        self._add(_Move(partition, future, ReplicaMove(is_assigned=is_assigned)))

    def cancel(self, partition: Partition) -> None:
        """The replica stays where it is. Raises StorageError if its copy cannot be removed."""
        move = self._end((partition.topic, partition.index), reassign=True)
        if move is not None:
            log.info("%s stays in %s", partition, partition.log.log_dir.path)
            self._logs.delete(move.future)

    def forget(self, partition: Partition) -> None:
        """This broker has lost the partition's log, or gives it up; the copy is left to others."""
        self._end((partition.topic, partition.index), reassign=not partition.log.log_dir.online)

    def on_directory_failure(self, directory: LogDirectory) -> None:
        """What moves to it stays where it is."""
        for move in [one for one in self._moves.values() if one.future.log_dir is directory]:
            log.error("%s stays in %s", move.partition, move.partition.log.log_dir.path)
            self._end(move.key, reassign=True)
            self._logs.forget_future(move.future)

    def on_assigned(self, replica: tuple[Uuid, int], directory_id: Uuid) -> None:
        """The controller has recorded the replica there."""
        for move in self._moves.values():
            if move.replica == replica and move.future.log_dir.directory_id == directory_id:
                move.state.on_assigned()
                move.wake.set()

    async def stop(self) -> None:
        """No future log is written after this; the next start goes on with them."""
        self._stopped = True
        for move in list(self._moves.values()):
            self._end(move.key, reassign=False)
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _add(self, move: _Move) -> None:
        move.partition.log.on_truncated = move.on_truncated
        self._moves[move.key] = move
        self._dispatch()

    def _end(self, key: Key, *, reassign: bool) -> _Move | None:
        """`reassign`: the replica is where it was, so the controller must not look for it elsewhere."""
        move = self._moves.pop(key, None)
        if move is None:
            return None
        current = move.partition.log
        current.on_truncated = None
        if reassign and move.state.may_be_assigned:
            self._assign(move.replica, current.log_dir.directory_id)
        if move.task is not None:
            move.task.cancel()
        return move

    def _dispatch(self) -> None:
        """Give the free places to those that wait, in the order of their names, as in Kafka."""
        waiting = sorted(
            (one for one in self._moves.values() if one.task is None and one.state.phase is not MovePhase.FAILED),
            key=lambda one: one.key,
        )
        for move in waiting[: max(0, self._limit - len(self._tasks))]:
            move.task = asyncio.get_running_loop().create_task(self._run(move), name=f"move of {move.partition}")
            self._tasks.add(move.task)
            move.task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("%s failed", task.get_name(), exc_info=task.exception())
        if not self._stopped:
            self._dispatch()

    # --- one move

    async def _run(self, move: _Move) -> None:
        """Until the replica has arrived, or cannot. Cancelled when the move is ended."""
        while move.key in self._moves:
            move.wake.clear()
            try:
                if await self._perform(move, move.next_step()):
                    return
            except (ApiError, UnexpectedAppendOffset, OffsetOutOfRange) as error:
                log.error("%s cannot be moved to %s: %s", move.partition, move.future.log_dir.path, error)
                move.state.fail()
                return
            except StorageError as error:
                if not (move.future.log_dir.online and move.partition.log.log_dir.online):
                    return  # the replica manager hears of it, and ends the move
                log.error("%s: moving to %s waits: %s", move.partition, move.future.log_dir.path, error)
                await self._wait(move, self._backoff_s)

    async def _perform(self, move: _Move, step: MoveStep) -> bool:
        """True once the logs have changed places."""
        future = move.future
        if isinstance(step, Copy):
            await self._copy(move, step.from_offset)
        elif isinstance(step, Cut):
            future.truncate_to(step.to_offset)
        elif isinstance(step, Restart):
            future.truncate_fully_and_start_at(step.start_offset)
        elif isinstance(step, Ask):
            self._assign(move.replica, future.log_dir.directory_id)
        elif isinstance(step, Flush):
            if step.now:
                future.flush_blocking()
            else:
                await future.flush()
        elif isinstance(step, ChangePlaces):
            await self._change_places(move)
            return True
        else:
            await self._wait(move, None)
        return False

    async def _wait(self, move: _Move, timeout_s: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await move.wake.wait()

    async def _copy(self, move: _Move, offset: int) -> None:
        now = monotonic_ms()
        if self._quota.is_exceeded(now):
            await self._wait(move, (self._quota.allowed_at_ms(now) - now) / 1000)
            return
        current, cuts = move.partition.log, move.cuts
        found = current.read(offset, SLICE_BYTES, end_offset=current.log_end_offset).records
        if found is None:
            raise OffsetOutOfRange(offset, current.log_start_offset, current.log_end_offset)
        try:
            active = current.segments.active
            is_last = found.file is active.file and found.position + found.length == active.size
            if is_last and move.state.phase is MovePhase.ASSIGNED:
                data = found.read()  # fresh in the page cache; then the two are level in this very moment
            else:
                data = await asyncio.to_thread(found.read)
        except OSError as error:
            raise current.read_failed(error) from error
        if move.cuts == cuts and move.key in self._moves:
            self._append(move, data)

    def _append(self, move: _Move, data: bytes) -> None:
        future = move.future
        before = future.log_end_offset
        future.append_as_follower(memoryview(data))
        if future.log_end_offset == before:
            raise UnexpectedAppendOffset(before, before)
        self._follow(move)
        self._quota.record(monotonic_ms(), len(data))

    def _follow(self, move: _Move) -> None:
        """High watermark and log start of the current log, as far as the copy reaches."""
        current, future = move.partition.log, move.future
        future.advance_high_watermark(current.high_watermark)
        if future.log_start_offset < current.log_start_offset <= future.high_watermark:
            future.advance_log_start(current.log_start_offset)

    async def _change_places(self, move: _Move) -> None:
        partition, future, old = move.partition, move.future, move.partition.log
        self._follow(move)
        self._logs.promote(future)
        del self._moves[move.key]
        old.on_truncated = None
        partition.on_log_moved(future)
        log.info("%s has moved from %s to %s", partition, old.log_dir.path, future.log_dir.path)
        await self._logs.sync_names((future.log_dir, old.log_dir))
