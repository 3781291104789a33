"""The way into the core: ``RaftNode.step(now_ms, input) -> Effects``.

Signatures are settled; the body follows.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from controller.raft.types import (
    Effects,
    ElectionState,
    Endpoint,
    Input,
    LogState,
    OffsetEpoch,
    ReplicaKey,
    Settings,
    VoterSet,
)


class ReplicaState(NamedTuple):
    """As in DescribeQuorum; -1 where the leader has not heard from the replica in its epoch."""

    key: ReplicaKey
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class RaftNode:
    def __init__(
        self,
        me: ReplicaKey,
        *,
        is_controller: bool,
        log: LogState,
        election: ElectionState,
        settings: Settings,
        random: Random,
        endpoints: tuple[Endpoint, ...] = (),
        static_voters: VoterSet = (),
        bootstrap_servers: int = 0,
        now_ms: int = 0,
    ) -> None:
        """``endpoints`` are this node's own on its controller listeners, the default one first.

        ``static_voters`` (``controller.quorum.voters``, directory ids zero) count as long as the log names no voters.
        ``bootstrap_servers`` is the number of ``controller.quorum.bootstrap.servers``; they are the peers -2, -3, …
        A broker (``is_controller`` false) is an observer for ever.
        """
        raise NotImplementedError

    def step(self, now_ms: int, event: Input) -> Effects:
        """Raises NotLeader for a refused ``Propose``, RaftError when told what cannot be."""
        raise NotImplementedError

    # Of the quorum as this node sees it.

    @property
    def role_name(self) -> str:
        """Unattached, Voted, Prospective, Candidate, Leader, Resigned, Follower, or Observer."""
        raise NotImplementedError

    @property
    def epoch(self) -> int:
        raise NotImplementedError

    @property
    def leader_id(self) -> int:
        """NOBODY when unknown."""
        raise NotImplementedError

    @property
    def is_leader(self) -> bool:
        raise NotImplementedError

    @property
    def is_voter(self) -> bool:
        raise NotImplementedError

    @property
    def high_watermark(self) -> int:
        """Everything below is committed; at least the end of the latest snapshot, never falls."""
        raise NotImplementedError

    @property
    def log_end_offset(self) -> int:
        """Where the next batch goes: ``Propose.batch.base_offset``."""
        raise NotImplementedError

    @property
    def log_start_offset(self) -> int:
        raise NotImplementedError

    @property
    def latest_snapshot_id(self) -> OffsetEpoch | None:
        raise NotImplementedError

    @property
    def voters(self) -> VoterSet:
        raise NotImplementedError

    @property
    def kraft_version(self) -> int:
        raise NotImplementedError

    def voters_at(self, end_offset: int) -> VoterSet | None:
        """What a snapshot that ends here has to say; None when the log names no voters (a static quorum)."""
        raise NotImplementedError

    def kraft_version_at(self, end_offset: int) -> int:
        raise NotImplementedError

    def endpoints_of(self, peer: int) -> tuple[Endpoint, ...]:
        """Where to reach a peer; empty when not known (and for bootstrap servers)."""
        raise NotImplementedError

    # Of a leader: DescribeQuorum. Empty on other nodes.

    def voter_states(self, now_ms: int) -> list[ReplicaState]:
        raise NotImplementedError

    def observer_states(self, now_ms: int) -> list[ReplicaState]:
        raise NotImplementedError
