"""What must be on disk before something is said: one sync at a time, and a queue of messages behind it.

Everything the core wants persisted gets a number. A message waits for the last number before it, or, if it does not
depend on the log, for the last election state: a vote that was forgotten could be given twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from controller.metadata_log import MetadataLog
from controller.quorum_state import QuorumState, write_quorum_state
from controller.raft.types import NOBODY, ElectionState, ReplicaKey, Reply, Send
from storage.errors import StorageError


class Durability:
    def __init__(
        self,
        log: MetadataLog,
        me: ReplicaKey,
        *,
        dispatch: Callable[[Send | Reply], None],
        on_flushed: Callable[[int], None],
        on_failed: Callable[[OSError | StorageError], None],
    ) -> None:
        """``on_failed`` hears an OSError when ``quorum-state`` could not be written: the old one is still there, and
        nobody has heard of the new one. After a StorageError nobody knows what the log holds."""
        self._log = log
        self._me = me
        self._dispatch = dispatch
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._election: ElectionState | None = None
        self._election_number = 0
        self._number = 0
        self._durable_number = 0
        self._outbox: deque[tuple[int, Send | Reply]] = deque()
        self._sync: asyncio.Task[None] | None = None
        self._stopped = False

    def note_election(self, election: ElectionState) -> None:
        self._number += 1
        self._election, self._election_number = election, self._number

    def note_log(self) -> None:
        """The log was changed: written to, or cut."""
        self._number += 1

    def send(self, message: Send | Reply) -> None:
        """Now, or when what it rests on is durable."""
        needed = self._number if message.after_persist else self._election_number
        if needed > self._durable_number:
            self._outbox.append((needed, message))
        else:
            self._dispatch(message)

    def start_sync(self) -> None:
        """To be called after the effects of a step: if anything is not durable, it will be."""
        if self._durable_number < self._number and self._sync is None:
            self._sync = asyncio.create_task(self._run(), name="sync of the metadata log")

    def stop(self) -> None:
        """What waits is dropped: nothing that rests on what is not durable has left, and nothing will."""
        self._stopped = True
        self._outbox.clear()

    def resume(self) -> None:
        """After a stop, when the log is durable and the core was made from what the disk has."""
        self._stopped = False
        self._election = None
        self._durable_number = self._number

    async def drain(self, timeout_s: float | None = None) -> None:
        """Wait for the sync under way: its thread holds the log's files."""
        if self._sync is not None:
            await asyncio.wait({self._sync}, timeout=timeout_s)

    async def _run(self) -> None:
        try:
            while self._durable_number < self._number and not self._stopped:
                number = self._number
                election, self._election = self._election, None
                if election is not None:
                    await self._write(election)
                end_offset = await self._log.flush()
                self._durable_number = number
                while self._outbox and self._outbox[0][0] <= number:
                    self._dispatch(self._outbox.popleft()[1])
                if not self._stopped:
                    self._on_flushed(end_offset)
        except (OSError, StorageError) as error:
            self._on_failed(error)
        finally:
            self._sync = None

    async def _write(self, election: ElectionState) -> None:
        voted = election.voted or ReplicaKey(NOBODY)
        if election.leader_id == self._me.id:
            voted = ReplicaKey(NOBODY)  # as Kafka writes it: who led an epoch votes for nobody else in it
        state = QuorumState(election.leader_id, election.epoch, voted.id, voted.directory_id)
        await asyncio.to_thread(write_quorum_state, self._log.directory, state, self._log.disk)
