"""The leader's side of replication: fetches validated, held and answered; snapshots handed out."""

from __future__ import annotations

from controller.raft.core import Core
from controller.raft.leading import Leading
from controller.raft.log_shape import Fit
from controller.raft.roles.leader import Leader, WaitingFetch
from controller.raft.types import NO_DEADLINE, Fetch, FetchAnswer, FetchSnapshot, FetchSnapshotAnswer
from controller.raft.voters import find_replica
from protocol.errors import ErrorCode


class Serving:
    def __init__(self, core: Core, leading: Leading) -> None:
        self._core = core
        self._leading = leading

    def leader_only(self, epoch: int) -> ErrorCode:
        """What a request that only the leader of ``epoch`` may serve is told here."""
        role = self._core.role
        if epoch < role.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > role.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not isinstance(role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def on_fetch(self, token: object, request: Fetch) -> None:
        core = self._core
        if request.fetch_offset < 0 or request.last_fetched_epoch < 0 or request.epoch < 0 or request.max_wait_ms < 0:
            core.reply(token, core.fetch_refusal(ErrorCode.INVALID_REQUEST), after_persist=False)
            return
        error = self.leader_only(request.epoch)
        role = core.role
        if error is not ErrorCode.NONE or not isinstance(role, Leader):
            core.reply(token, core.fetch_refusal(error), after_persist=False)
            return
        answer = self._answer(role, request)
        if answer.diverging is None and answer.snapshot_id is None:
            # Its log is a prefix of ours up to there, and durable: that is what the high watermark is made of.
            role.on_fetch(request.replica, request.fetch_offset, core.log.end_offset, core.voters, core.now_ms)
            self._leading.update_high_watermark(role)
            answer = answer._replace(high_watermark=self._known_high_watermark(role))
        else:
            role.heard_from(request.replica, core.voters, core.now_ms)
        if request.max_wait_ms == 0 or self._has_news(request, answer):
            core.reply(token, answer, after_persist=False)
        else:
            role.waiting.append(WaitingFetch(token, request, core.now_ms + request.max_wait_ms))

    def _answer(self, leader: Leader, request: Fetch) -> FetchAnswer:
        core = self._core
        log = core.log
        answer = FetchAnswer(
            ErrorCode.NONE,
            leader.epoch,
            core.me.id,
            self._known_high_watermark(leader),
            log.start.offset,
            leader_endpoints=core.endpoints,
        )
        fit, at = log.validate(request.fetch_offset, request.last_fetched_epoch)
        if fit is Fit.DIVERGING:
            return answer._replace(diverging=at)
        if fit is Fit.SNAPSHOT:
            return answer._replace(snapshot_id=at)
        return answer._replace(read_from=request.fetch_offset if request.fetch_offset < log.end_offset else None)

    def _known_high_watermark(self, leader: Leader) -> int:
        return self._core.log.high_watermark if leader.is_ready else -1

    def _has_news(self, request: Fetch, answer: FetchAnswer) -> bool:
        """KIP-1166: a high watermark the follower does not know yet is worth an answer of its own."""
        return (
            answer.read_from is not None
            or answer.diverging is not None
            or answer.snapshot_id is not None
            or answer.high_watermark > request.high_watermark
        )

    def poll(self, leader: Leader) -> int:
        """Answer waiting fetches for which there is news or whose time is up. Returns the next deadline."""
        deadline_ms = NO_DEADLINE
        still_waiting = []
        for fetch in leader.waiting:
            answer = self._answer(leader, fetch.request)
            if self._core.now_ms >= fetch.deadline_ms or self._has_news(fetch.request, answer):
                self._core.reply(fetch.token, answer, after_persist=False)
            else:
                still_waiting.append(fetch)
                deadline_ms = min(deadline_ms, fetch.deadline_ms)
        leader.waiting = still_waiting
        return deadline_ms

    def on_fetch_snapshot(self, token: object, request: FetchSnapshot) -> None:
        """The driver reads the bytes, or finds that the snapshot is gone or ends before ``position``."""
        core = self._core
        role = core.role
        error = self.leader_only(request.epoch)
        if error is ErrorCode.NONE and request.position < 0:
            error = ErrorCode.POSITION_OUT_OF_RANGE
        if isinstance(role, Leader) and error is ErrorCode.NONE:
            if find_replica(core.voters, request.replica) is not None:
                role.heard_from(request.replica, core.voters, core.now_ms)
            latest = core.log.snapshot_id
            if latest is None or request.snapshot_id.offset > latest.offset:
                error = ErrorCode.SNAPSHOT_NOT_FOUND
        endpoints = core.answer().leader_endpoints
        answer = FetchSnapshotAnswer(
            error,
            role.epoch,
            role.leader_id,
            request.snapshot_id,
            request.position,
            leader_endpoints=endpoints,
        )
        core.reply(token, answer, after_persist=False)
