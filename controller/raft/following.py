"""The follower's side of replication: fetching, truncating what diverges, downloading snapshots."""

from __future__ import annotations

from controller.raft.core import Core
from controller.raft.roles.follower import Download, Follower
from controller.raft.types import (
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
    OffsetEpoch,
    SnapshotInstalled,
    WriteSnapshotPart,
    bootstrap_peer,
)
from protocol.errors import ErrorCode


class Following:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._next_round_ms = 0
        """Nobody is asked who leads more often than the retry backoff allows, however many there are to ask."""

    # Asking

    def poll(self, role: Follower) -> int:
        """Fetch from the leader. If it does not answer, ask around who leads by now."""
        core = self._core
        leader_id = role.leader_id
        is_lost = core.now_ms >= role.election_deadline_ms
        if is_lost:
            role.download = None  # whoever leads by now may have another snapshot
        download = role.download
        if is_lost:
            return self.ask_around(leader_id)
        if download is None and core.peers.is_resting(leader_id, core.now_ms):
            return min(self.ask_around(), core.peers.when_ready(leader_id, core.now_ms + 1))
        at_ms = core.peers.when_ready(leader_id, core.now_ms)
        if at_ms > core.now_ms:
            return at_ms
        if download is not None:
            request = FetchSnapshot(role.epoch, core.me, download.snapshot_id, download.position)
            core.send(leader_id, request)
        else:
            core.send(leader_id, self.fetch())
        return core.peers.when_ready(leader_id, core.now_ms)

    def fetch(self) -> Fetch:
        """Where the log ends says how much of it is durable here, so it leaves after the disk has caught up."""
        core = self._core
        last = core.log.last
        return Fetch(
            core.epoch, core.me, last.offset, last.epoch, core.settings.fetch_max_wait_ms, core.log.high_watermark
        )

    def on_refused(self, peer: int) -> None:
        """The leader's process is gone. Voters stand soon, each after a moment of its own, so that one is the first;
        the pre-vote keeps a single one that cannot reach a living leader from disturbing the others."""
        core, role = self._core, self._core.role
        if isinstance(role, Follower) and role.leader_id == peer:
            role.leader_is_gone(core.now_ms + core.random.randrange(core.settings.election_timeout_ms // 5 + 1))

    def ask_around(self, leader_id: int | None = None) -> int:
        """One fetch at a time to a bootstrap server, or without such to a voter: it tells who leads. The leader last
        known may be there again as well."""
        core = self._core
        busy_until_ms = core.peers.busy_until(core.now_ms)
        if busy_until_ms is not None:
            return busy_until_ms
        if core.now_ms < self._next_round_ms:
            return self._next_round_ms
        if core.bootstrap_servers:
            known = [bootstrap_peer(index) for index in range(core.bootstrap_servers)]
        else:
            known = [voter.key.id for voter in core.remote_voters]
        if leader_id is not None and leader_id not in known:
            known.append(leader_id)
        if not known:
            return core.now_ms + core.settings.fetch_timeout_ms
        times = {peer: core.peers.when_ready(peer, core.now_ms) for peer in known}
        ready = [peer for peer, at_ms in times.items() if at_ms <= core.now_ms]
        if not ready:
            return min(times.values())
        peer = ready[core.random.randrange(len(ready))]
        core.send(peer, self.fetch())
        self._next_round_ms = core.now_ms + core.settings.retry_backoff_ms
        return core.peers.when_ready(peer, core.now_ms)

    # Answers

    def on_fetch_answer(self, peer: int, request: Fetch, answer: FetchAnswer) -> None:
        core = self._core
        role = core.role
        if answer.error is not ErrorCode.NONE:
            core.peers.rest(peer, core.now_ms)
            return
        if not isinstance(role, Follower) or answer.epoch != role.epoch or role.download is not None:
            return
        last = core.log.last
        if (request.epoch, request.fetch_offset, request.last_fetched_epoch) != (role.epoch, last.offset, last.epoch):
            return  # asked before the log or the epoch changed
        # No error: only the leader of the epoch answers so, whatever address it was asked at.
        role.heard_from_leader(core.now_ms)
        role.has_fetched = True
        if answer.diverging is not None:
            self._on_diverging(answer.diverging)
        elif answer.snapshot_id is not None:
            self._on_snapshot_needed(role, peer, answer.snapshot_id)
        else:
            if answer.batches:
                core.append(answer.batches)
            core.raise_high_watermark(answer.high_watermark)

    def _on_diverging(self, diverging: OffsetEpoch) -> None:
        """Cut back to what may be shared, and try again from there. Below the high watermark this raises: what is
        committed cannot diverge, so someone's disk or code is broken, and nobody may go on as if it were not."""
        log = self._core.log
        end_offset = log.truncation_point(diverging)
        if end_offset < log.end_offset:
            self._core.truncate(end_offset)

    def _on_snapshot_needed(self, role: Follower, peer: int, snapshot_id: OffsetEpoch) -> None:
        """One that ends below our high watermark is nothing we lack: the leader is confused, or we are told late."""
        core = self._core
        if snapshot_id.epoch < 0 or snapshot_id.offset < core.log.high_watermark:
            core.peers.rest(peer, core.now_ms)
            return
        role.download = Download(snapshot_id)

    def on_snapshot_answer(self, peer: int, request: FetchSnapshot, answer: FetchSnapshotAnswer) -> None:
        core = self._core
        role = core.role
        if not isinstance(role, Follower) or role.download is None or core.installing is not None:
            return
        download = role.download
        if (request.snapshot_id, request.position) != (download.snapshot_id, download.position):
            return
        if answer.error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
            role.download = None  # the leader has a later one by now: the next fetch tells which
            core.peers.rest(peer, core.now_ms)
            return
        if answer.error is not ErrorCode.NONE:
            core.peers.rest(peer, core.now_ms)
            return
        length = len(answer.payload)
        if (answer.snapshot_id, answer.position) != (download.snapshot_id, download.position) or (
            length == 0 and download.position < answer.size
        ):
            core.peers.rest(peer, core.now_ms)
            return
        role.heard_from_leader(core.now_ms)
        role.has_fetched = True
        part = WriteSnapshotPart(download.snapshot_id, download.position, answer.size, answer.payload)
        core.effects.persist.append(part)
        download.position += length
        if download.position >= answer.size:
            core.installing = download.snapshot_id

    def on_snapshot_installed(self, event: SnapshotInstalled) -> None:
        """The log is what the snapshot says now, whatever the role has become meanwhile."""
        core = self._core
        core.installing = None
        core.log.install(event.snapshot_id)
        core.history.install(event.snapshot_id, event.voters, event.kraft_version)
        core.effects.high_watermark = event.snapshot_id.offset
        if isinstance(core.role, Follower):
            core.role.download = None
            core.role.heard_from_leader(core.now_ms)
