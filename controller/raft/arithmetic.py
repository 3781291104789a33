"""The numbers consensus rests on, as functions of their arguments alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random

from controller.raft.types import ReplicaKey

UNKNOWN_OFFSET = -1


def majority(voters: int) -> int:
    """Any two majorities share a voter: that one voter is why two leaders cannot both be elected or both commit."""
    return voters // 2 + 1


def committed_offset(acked: Mapping[ReplicaKey, int], voters: Iterable[ReplicaKey]) -> int:
    """The highest end offset that is durable on a majority of ``voters``; replicas that are not voters do not count.

    A voter nobody has heard of holds nothing. -1 without voters.
    """
    offsets = sorted((acked.get(key, UNKNOWN_OFFSET) for key in voters), reverse=True)
    return offsets[majority(len(offsets)) - 1] if offsets else UNKNOWN_OFFSET


def election_timeout(base_ms: int, random: Random) -> int:
    """Between one and two times the setting, so that voters rarely stand at the same moment."""
    return base_ms + random.randrange(base_ms) if base_ms > 0 else 0


def succession_backoff(position: int, successors: int, max_ms: int) -> int:
    """How long the successor at ``position`` of a resigning leader waits: the first not at all, then doubling up to
    the maximum, so that the best candidate stands alone for as long as possible."""
    if position <= 0:
        return 0
    base_ms = max_ms >> max(successors - 1, 0)
    return min(max_ms, base_ms << min(position - 1, 30))
