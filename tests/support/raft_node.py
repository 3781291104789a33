"""A single core driven by hand: inputs in, effects looked at."""

from __future__ import annotations

from random import Random
from typing import Any

from controller.raft.node import RaftNode
from controller.raft.types import (
    Answer,
    Answered,
    Append,
    Batch,
    Effects,
    ElectionState,
    Endpoint,
    Fetch,
    Flushed,
    Input,
    LogState,
    PeerAnswer,
    PeerRequest,
    Propose,
    Received,
    ReplicaKey,
    Reply,
    Send,
    Settings,
    Tick,
    Vote,
    Voter,
    VoterSet,
)
from protocol.errors import ErrorCode
from protocol.uuids import Uuid

SETTINGS = Settings()


def key(node_id: int, disk: int = 0) -> ReplicaKey:
    return ReplicaKey(node_id, Uuid(bytes([node_id, disk + 1]) * 8))


def endpoints(node_id: int) -> tuple[Endpoint, ...]:
    return (Endpoint("CONTROLLER", f"host-{node_id}", 9093),)


def voter(node_id: int) -> Voter:
    return Voter(key(node_id), endpoints(node_id))


def voters(*ids: int) -> VoterSet:
    return tuple(voter(node_id) for node_id in ids)


def static_voters(*ids: int) -> VoterSet:
    return tuple(Voter(ReplicaKey(node_id), endpoints(node_id)) for node_id in ids)


class Hand:
    """Node 1, unless told otherwise. ``effects`` are of the last step."""

    def __init__(self, me: int = 1, *, voter_set: VoterSet | None = None, **changes: Any) -> None:
        voter_set = voters(1, 2, 3) if voter_set is None else voter_set
        arguments: dict[str, Any] = {
            "is_controller": True,
            "log": LogState(voter_sets=((-1, voter_set),), kraft_versions=((-1, 1),)) if voter_set else LogState(),
            "election": ElectionState(),
            "settings": SETTINGS,
            "random": Random(7),
            "endpoints": endpoints(me),
        }
        self.node = RaftNode(changes.pop("key", key(me)), **(arguments | changes))
        self.now = 0
        self.effects = Effects()
        self.step(Tick())

    def step(self, event: Input) -> Effects:
        self.effects = self.node.step(self.now, event)
        return self.effects

    def wait(self, ms: int) -> Effects:
        """Time passes, with a tick at every deadline; the effects of all of them."""
        end, all_effects = self.now + ms, Effects()
        while self.effects.deadline_ms <= end:
            self.now = max(self.effects.deadline_ms, self.now)
            self._collect(all_effects, self.step(Tick()))
        self.now = end
        self._collect(all_effects, self.step(Tick()))
        all_effects.deadline_ms = self.effects.deadline_ms
        return all_effects

    @staticmethod
    def _collect(into: Effects, effects: Effects) -> None:
        into.persist += effects.persist
        into.send += effects.send
        into.leadership = effects.leadership or into.leadership

    def ask(self, request: PeerRequest, token: object = "token") -> PeerAnswer | None:
        """The answer to this request, None if it has to wait."""
        return self.reply_to(token, self.step(Received(token, request)))

    @staticmethod
    def reply_to(token: object, effects: Effects) -> PeerAnswer | None:
        replies = [sent.answer for sent in effects.send if isinstance(sent, Reply) and sent.token == token]
        assert len(replies) <= 1
        return replies[0] if replies else None

    def sent(self, kind: type[PeerRequest], effects: Effects | None = None) -> list[Send]:
        source = self.effects if effects is None else effects
        return [sent for sent in source.send if isinstance(sent, Send) and isinstance(sent.request, kind)]

    def answer(self, sent: Send, answer: PeerAnswer) -> Effects:
        return self.step(Answered(sent.peer, sent.request, answer))

    def grant(self, sent: Send, *, granted: bool = True, error: ErrorCode = ErrorCode.NONE) -> Effects:
        assert isinstance(sent.request, Vote)
        return self.answer(sent, Answer(error, self.node.epoch, granted=granted))

    # Shortcuts into roles

    def stand(self) -> list[Send]:
        """Prospective, with its pre-votes on the way."""
        for _ in range(20):
            if self.node.role_name == "Prospective":
                return self.sent(Vote)
            self.now = self.effects.deadline_ms
            self.step(Tick())
        raise AssertionError(self.node.role_name)

    def be_candidate(self) -> list[Send]:
        for sent in self.stand():
            self.grant(sent)
            if self.node.role_name == "Candidate":
                return self.sent(Vote)
        raise AssertionError(self.node.role_name)

    def lead(self, *, is_ready: bool = True) -> Effects:
        """Leader, by default with its first batch committed by node 2."""
        for sent in self.be_candidate():
            effects = self.grant(sent)
            if self.node.is_leader:
                break
        assert self.node.is_leader
        if is_ready:
            self.flush()
            self.fetch(2)
            self.fetch(3)
            assert self.node.leadership.is_ready
        return effects

    def flush(self) -> Effects:
        return self.step(Flushed(self.node.log_end_offset))

    def fetch(self, follower: int, **changes: Any) -> PeerAnswer | None:
        """A fetch of a follower that has everything, unless told otherwise."""
        request = Fetch(self.node.epoch, key(follower), self.node.log_end_offset, self.node.epoch)
        return self.ask(request._replace(**changes), token=("fetch", follower))

    def propose(self, payload: object = "change") -> Batch:
        base = self.node.log_end_offset
        batch = Batch(base, base + 1, self.node.epoch, payload=payload)
        self.step(Propose(batch))
        return batch

    def appended(self, effects: Effects | None = None) -> list[Batch]:
        source = self.effects if effects is None else effects
        return [batch for op in source.persist if isinstance(op, Append) for batch in op.batches]
