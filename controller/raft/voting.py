"""Elections: votes and pre-votes, asked for and given."""

from __future__ import annotations

from controller.raft.core import Core
from controller.raft.leading import Leading
from controller.raft.roles.nominee import Nominee
from controller.raft.roles.prospective import Prospective
from controller.raft.types import NOBODY, Answer, Vote
from protocol.errors import ErrorCode


class Voting:
    def __init__(self, core: Core, leading: Leading) -> None:
        self._core = core
        self._leading = leading

    # Giving

    def on_vote(self, token: object, request: Vote) -> None:
        """The answer waits for all that is not yet durable: the vote itself, and the log it was compared with."""
        core = self._core
        error = self._refusal(request)
        if error is not ErrorCode.NONE:
            core.reply(token, core.answer(error))
            return
        if request.epoch > core.epoch:
            core.quorum.become_unattached(request.epoch, core.now_ms)
        if not core.is_me(request.voter):
            core.reply(token, core.answer(ErrorCode.INVALID_VOTER_KEY))
            return
        granted = core.role.can_grant_vote(
            request.candidate, is_up_to_date=self.is_up_to_date(request), is_pre_vote=request.pre_vote
        )
        if granted and not request.pre_vote:
            core.quorum.grant_vote(request.candidate, core.now_ms)
        core.reply(token, core.answer(granted=granted))

    def is_up_to_date(self, request: Vote) -> bool:
        """A later last epoch wins, then the longer log. A snapshot about to replace ours counts already."""
        own = self._core.installing or self._core.log.last
        return (request.last.epoch, request.last.offset) >= (own.epoch, own.offset)

    def _refusal(self, request: Vote) -> ErrorCode:
        """Who asks may be no voter by our log and yet be one by a later entry; so that is no reason (KIP-853)."""
        core = self._core
        newest_epoch = request.epoch if request.pre_vote else request.epoch - 1
        if request.last.offset < 0 or not 0 <= request.last.epoch <= newest_epoch or request.candidate.id < 0:
            return ErrorCode.INVALID_REQUEST
        if request.epoch < core.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.NONE

    # Asking

    def poll(self, role: Nominee) -> int:
        """Ask every voter that has not answered yet. Returns when to look again."""
        core = self._core
        if self._maybe_decide(role):
            return core.now_ms
        if core.now_ms >= role.election_deadline_ms:
            self._on_time_out(role)
            return core.now_ms
        deadline_ms = role.election_deadline_ms
        waiting = set(role.unrecorded)
        for voter in core.remote_voters:
            if voter.key.id not in waiting:
                continue
            if core.peers.when_ready(voter.key.id, core.now_ms) <= core.now_ms:
                core.send(voter.key.id, Vote(role.epoch, core.me, voter.key, core.log.last, role.is_pre_vote))
            deadline_ms = min(deadline_ms, core.peers.when_ready(voter.key.id, core.now_ms))
        return deadline_ms

    def on_answer(self, peer: int, request: Vote, answer: Answer) -> None:
        role = self._core.role
        if not isinstance(role, Nominee) or request.epoch != role.epoch or request.pre_vote != role.is_pre_vote:
            return
        core = self._core
        if answer.error is ErrorCode.UNSUPPORTED_VERSION and request.pre_vote and core.quorum.is_voter:
            core.quorum.become_candidate(core.now_ms)  # where one peer knows no pre-vote there is none (KIP-996)
            return
        if answer.error is not ErrorCode.NONE:
            core.peers.rest(peer, core.now_ms)
            return
        role.record(peer, granted=answer.granted)
        self._maybe_decide(role)

    def _maybe_decide(self, role: Nominee) -> bool:
        """True if the role changed."""
        core = self._core
        if isinstance(role, Prospective):
            if role.is_won and core.quorum.is_voter:
                core.quorum.become_candidate(core.now_ms)
                return True
            if role.is_lost or not core.quorum.is_voter:
                self._stand_down(role)
                return True
        elif role.is_won:
            self._leading.become_leader()
            return True
        # A candidate that cannot win any more waits for its time-out all the same: someone else may be winning.
        return False

    def _on_time_out(self, role: Nominee) -> None:
        core = self._core
        if isinstance(role, Prospective):
            self._stand_down(role)
        elif core.quorum.is_voter:
            core.quorum.become_prospective(core.now_ms)
        else:
            core.quorum.become_unattached(core.epoch + 1, core.now_ms)

    def _stand_down(self, role: Prospective) -> None:
        core = self._core
        if role.leader_id != NOBODY and role.leader_endpoints:
            core.quorum.become_follower(role.epoch, role.leader_id, role.leader_endpoints, core.now_ms)
        else:
            core.quorum.become_unattached(role.epoch, core.now_ms, role.leader_id)
