"""Changes of the voter set while the quorum runs (KIP-853): one voter at a time, one change at a time.

Any majority of the old set meets any majority of the new one then. The leader must have committed in its own epoch
first, so that no change of an earlier leader is left undecided, and no earlier change may be uncommitted.
"""

from __future__ import annotations

from controller.raft.core import Core
from controller.raft.leading import Leading
from controller.raft.roles.follower import Follower
from controller.raft.roles.leader import Leader, VoterChange
from controller.raft.serving import Serving
from controller.raft.types import (
    NO_DEADLINE,
    AddVoter,
    Answer,
    ProbeVersions,
    RemoveVoter,
    UpdateVoter,
    VersionsAnswer,
    Voter,
    VotersChange,
)
from controller.raft.voters import find_replica, find_voter, with_voter, without_voter
from protocol.errors import ErrorCode


class VoterChanges:
    def __init__(self, core: Core, leading: Leading, serving: Serving) -> None:
        self._core = core
        self._leading = leading
        self._serving = serving

    # The leader's side

    def on_add(self, token: object, request: AddVoter) -> None:
        core = self._core
        leader, refusal = self._may_change("adding")
        if leader is None:
            core.reply(token, refusal)
            return
        voter = request.voter
        if not self._has_default_listener(voter):
            text = "Add voter request didn't include the endpoint for the default listener"
            core.reply(token, core.answer(ErrorCode.INVALID_REQUEST, message=text))
            return
        if find_voter(core.voters, voter.key.id) is not None:
            text = f"The voter id {voter.key.id} is already part of the set of voters {self._ids()}."
            core.reply(token, core.answer(ErrorCode.DUPLICATE_VOTER, message=text))
            return
        timeout_ms = min(max(request.timeout_ms, 0), core.settings.request_timeout_ms)
        leader.change = VoterChange(token, core.now_ms + timeout_ms, voter, request.ack_when_committed)
        core.send(voter.key.id, ProbeVersions(voter))

    def on_versions(self, request: ProbeVersions, answer: VersionsAnswer) -> None:
        core = self._core
        leader = core.role
        if not isinstance(leader, Leader):
            return
        change = leader.change
        if change is None or change.offset is not None or change.added != request.voter:
            return
        key = request.voter.key
        if answer.error is not ErrorCode.NONE:
            text = f"Aborted add voter operation since API_VERSIONS returned an error {answer.error.name}"
            self._finish(leader, ErrorCode.REQUEST_TIMED_OUT, text)
        elif not answer.min_kraft_version <= core.history.kraft_version <= answer.max_kraft_version:
            text = (
                f"Aborted add voter operation for {key.id} since the kraft.version range (min: "
                f"{answer.min_kraft_version}, max: {answer.max_kraft_version}) doesn't support the finalized version "
                f"{core.history.kraft_version}"
            )
            self._finish(leader, ErrorCode.INVALID_REQUEST, text)
        elif not leader.is_caught_up(key, core.now_ms):
            text = f"Aborted add voter operation for {key.id} since it is lagging behind"
            self._finish(leader, ErrorCode.REQUEST_TIMED_OUT, text)
        else:
            added = Voter(key, request.voter.endpoints, answer.min_kraft_version, answer.max_kraft_version)
            change.offset = self._leading.append_control(VotersChange(with_voter(core.voters, added)))
            if not change.ack_when_committed:
                self._answer(change, ErrorCode.NONE, None)

    def on_probe_failed(self, request: ProbeVersions) -> None:
        leader = self._core.role
        change = leader.change if isinstance(leader, Leader) else None
        if isinstance(leader, Leader) and change and change.added == request.voter and change.offset is None:
            text = f"New voter {request.voter.key.id} is not ready to receive requests"
            self._finish(leader, ErrorCode.REQUEST_TIMED_OUT, text)

    def on_remove(self, token: object, request: RemoveVoter) -> None:
        core = self._core
        leader, refusal = self._may_change("removing")
        if leader is None:
            core.reply(token, refusal)
            return
        remaining = without_voter(core.voters, request.key)
        if len(remaining) == len(core.voters):
            text = f"Cannot remove voter {request.key.id} from the set of voters {self._ids()}"
            core.reply(token, core.answer(ErrorCode.VOTER_NOT_FOUND, message=text))
            return
        if not remaining:
            text = f"Cannot remove voter {request.key.id}: it is the last one"
            core.reply(token, core.answer(ErrorCode.INVALID_REQUEST, message=text))
            return
        change = VoterChange(token, core.now_ms + min(max(request.timeout_ms, 0), core.settings.request_timeout_ms))
        change.offset = self._leading.append_control(VotersChange(remaining))
        leader.change = change

    def on_update(self, token: object, request: UpdateVoter) -> None:
        """A voter that moved, or was upgraded, says so itself. Answered when appended, not when committed."""
        core = self._core
        error = self._serving.leader_only(request.epoch)
        if error is not ErrorCode.NONE:
            core.reply(token, core.answer(error))
            return
        voter = request.voter
        role = core.role
        if core.history.kraft_version == 0 and isinstance(role, Leader) and role.is_ready and role.change is None:
            known = find_replica(core.voters, voter.key)
            if known is None:
                error = ErrorCode.VOTER_NOT_FOUND
            elif not self._has_default_listener(voter):
                error = ErrorCode.INVALID_REQUEST
            else:
                role.supported[voter.key.id] = voter
            core.reply(token, core.answer(error))
            return
        leader, refusal = self._may_change("updating")
        if leader is None:
            core.reply(token, refusal)
            return
        known = find_voter(core.voters, voter.key.id)
        if (
            not voter.min_kraft_version <= core.history.kraft_version <= voter.max_kraft_version
            or not self._has_default_listener(voter)
        ):
            error = ErrorCode.INVALID_REQUEST
        elif known is None or known.key != voter.key:
            error = ErrorCode.VOTER_NOT_FOUND
        elif known != voter:
            self._leading.append_control(VotersChange(with_voter(core.voters, voter)))
        core.reply(token, core.answer(error))

    def poll(self, leader: Leader) -> int:
        """After the high watermark moved, or time passed. A leader that is no voter any more leaves when that is
        committed; until then it leads on, without counting itself."""
        core = self._core
        change = leader.change
        if change is not None and change.offset is not None and core.log.high_watermark > change.offset:
            self._finish(leader, ErrorCode.NONE, None)
        elif change is not None and core.now_ms >= change.deadline_ms:
            self._finish(leader, ErrorCode.REQUEST_TIMED_OUT, "Request timed out waiting for the change to commit")
        offset = core.history.voters_offset
        is_committed = offset is not None and core.log.high_watermark > offset and leader.is_ready
        if is_committed and find_replica(core.voters, core.me) is None:
            leader.must_resign = True
        return leader.change.deadline_ms if leader.change is not None else NO_DEADLINE

    def _may_change(self, doing: str) -> tuple[Leader | None, Answer]:
        """The leader, if the voter set may be changed now; else None and why not."""
        core = self._core
        leader = core.role
        offset = core.history.voters_offset
        text: str | None = None
        error = ErrorCode.REQUEST_TIMED_OUT
        if not isinstance(leader, Leader):
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif leader.change is not None:
            text = "Request timed out waiting for leader to handle previous voter change request"
        elif not leader.is_ready:
            text = "Request timed out waiting for leader to establish HWM and fence previous voter changes"
        elif core.history.kraft_version == 0:
            error = ErrorCode.UNSUPPORTED_VERSION
            text = f"Cluster doesn't support {doing} voter because the kraft.version feature is 0"
        elif offset is None or offset >= core.log.high_watermark:
            text = (
                "Request timed out waiting for voters to commit the latest voter change at "
                f"{offset} with HWM {core.log.high_watermark}"
            )
        else:
            return leader, core.answer()
        return None, core.answer(error, message=text)

    def _has_default_listener(self, voter: Voter) -> bool:
        """The listener on which this node reaches its peers; they must be reachable on it."""
        own = self._core.endpoints
        return not own or any(endpoint.listener == own[0].listener for endpoint in voter.endpoints)

    def _ids(self) -> list[int]:
        return [voter.key.id for voter in self._core.voters]

    def _finish(self, leader: Leader, error: ErrorCode, message: str | None) -> None:
        change, leader.change = leader.change, None
        if change is not None:
            self._answer(change, error, message)

    def _answer(self, change: VoterChange, error: ErrorCode, message: str | None) -> None:
        if change.token is not None:
            self._core.reply(change.token, self._core.answer(error, message=message))
            change.token = None

    # The follower's side

    def poll_follower(self, role: Follower) -> bool:
        """Once in a while: a voter tells the leader where it is now, an observer that may joins. True if it asked."""
        core = self._core
        if core.now_ms < role.voter_change_ms:
            return False
        request = self._wish(role)
        if request is None:
            role.put_off_voter_change(core.now_ms)
            return False
        if core.peers.when_ready(role.leader_id, core.now_ms) > core.now_ms:
            return False  # after the answer that is under way
        core.send(role.leader_id, request)
        role.put_off_voter_change(core.now_ms)
        return True

    def _wish(self, role: Follower) -> UpdateVoter | AddVoter | RemoveVoter | None:
        core = self._core
        own = find_voter(core.voters, core.me.id)
        is_dynamic = core.history.kraft_version > 0
        if core.quorum.is_voter:
            needs_update = own != core.own_voter if is_dynamic else not role.has_updated_leader
            return UpdateVoter(role.epoch, core.own_voter) if needs_update and core.endpoints else None
        if not (is_dynamic and core.is_controller and core.settings.auto_join and core.endpoints):
            return None
        if own is not None:
            return RemoveVoter(own.key, core.settings.request_timeout_ms)  # this node, with a disk it no longer has
        return AddVoter(core.own_voter, core.settings.request_timeout_ms, ack_when_committed=False)

    def on_update_answer(self, answer: Answer) -> None:
        role = self._core.role
        if isinstance(role, Follower) and answer.error is ErrorCode.NONE and answer.epoch == role.epoch:
            role.has_updated_leader = True
