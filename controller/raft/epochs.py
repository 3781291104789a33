"""BeginQuorumEpoch and EndQuorumEpoch: a leader announces itself, or that it is leaving."""

from __future__ import annotations

from controller.raft.arithmetic import succession_backoff
from controller.raft.core import Core
from controller.raft.roles.follower import Follower
from controller.raft.roles.prospective import Prospective
from controller.raft.types import BeginQuorumEpoch, EndQuorumEpoch, ReplicaKey
from protocol.errors import ErrorCode


class Epochs:
    def __init__(self, core: Core) -> None:
        self._core = core

    def on_begin(self, token: object, request: BeginQuorumEpoch) -> None:
        core = self._core
        error = self._refusal(request.leader_id, request.epoch)
        if error is not ErrorCode.NONE:
            core.reply(token, core.answer(error))
            return
        core.learn(request.epoch, request.leader_id, request.leader_endpoints)
        role = core.role
        if isinstance(role, Prospective) and role.leader_endpoints:
            # It took the leader for lost, and here it is.
            core.quorum.become_follower(role.epoch, role.leader_id, role.leader_endpoints, core.now_ms)
        elif isinstance(role, Follower):
            role.heard_from_leader(core.now_ms)
        core.reply(token, core.answer(ErrorCode.NONE if core.is_me(request.voter) else ErrorCode.INVALID_VOTER_KEY))

    def on_end(self, token: object, request: EndQuorumEpoch) -> None:
        """The leader resigns: the successors it names stand one after the other, the best informed at once."""
        core = self._core
        error = self._refusal(request.leader.id, request.epoch)
        if error is not ErrorCode.NONE:
            core.reply(token, core.answer(error))
            return
        core.learn(request.epoch, request.leader.id, request.leader_endpoints)
        role = core.role
        if isinstance(role, Follower) and role.leader_id == request.leader.id:
            position = self._position(request.preferred)
            backoff_ms = succession_backoff(position, len(request.preferred), core.settings.election_backoff_max_ms)
            role.expect_election(core.now_ms + backoff_ms)
        core.reply(token, core.answer())

    def _refusal(self, leader_id: int, epoch: int) -> ErrorCode:
        core = self._core
        if leader_id < 0:
            return ErrorCode.INVALID_REQUEST
        if epoch < core.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch == core.epoch and leader_id == core.me.id and core.role.leader_id != core.me.id:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def _position(self, preferred: tuple[ReplicaKey, ...]) -> int:
        """Of this node among the successors; behind all of them if it is none."""
        for position, key in enumerate(preferred):
            if key.id == self._core.me.id and self._core.is_me(key):
                return position
        return len(preferred)
