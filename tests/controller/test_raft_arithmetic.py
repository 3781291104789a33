"""Leaf functions of the core, beside naive twins."""

from __future__ import annotations

from random import Random

from controller.raft.arithmetic import committed_offset, election_timeout, majority, succession_backoff
from controller.raft.log_shape import Fit, LogShape
from controller.raft.types import Batch, LogState, OffsetEpoch, ReplicaKey


def test_committed_is_what_a_majority_of_voters_holds() -> None:
    rng = Random(1)
    for _ in range(500):
        voters = [ReplicaKey(node_id) for node_id in range(rng.randrange(1, 8))]
        acked = {key: rng.randrange(20) for key in voters if rng.random() < 0.8}
        acked |= {ReplicaKey(100 + node_id): 1_000 for node_id in range(5)}  # observers, far ahead
        naive = max(
            (
                offset
                for offset in range(-1, 20)
                if sum(acked.get(key, -1) >= offset for key in voters) >= majority(len(voters))
            ),
        )
        assert committed_offset(acked, voters) == naive


def test_without_voters_nothing_is_committed() -> None:
    assert committed_offset({ReplicaKey(1): 5}, []) == -1


def test_election_timeouts_spread_over_twice_the_setting() -> None:
    drawn = [election_timeout(1_000, Random(seed)) for seed in range(300)]
    assert min(drawn) >= 1_000
    assert max(drawn) < 2_000
    assert max(drawn) - min(drawn) > 800


def test_successors_wait_twice_as_long_each() -> None:
    assert [succession_backoff(position, 4, 1_000) for position in range(5)] == [0, 125, 250, 500, 1_000]
    assert succession_backoff(0, 0, 1_000) == 0


def a_log(epochs: list[int]) -> LogShape:
    """One record for each epoch listed."""
    log = LogShape(LogState())
    for offset, epoch in enumerate(epochs):
        log.append(Batch(offset, offset + 1, epoch))
    return log


def test_divergence_ends_at_the_last_shared_record() -> None:
    """Two logs made of a shared beginning and different rests: the follower cuts and asks until it fits, and never
    cuts what is shared."""
    rng = Random(2)
    for _ in range(400):
        shared = sorted(rng.choices(range(1, 5), k=rng.randrange(6)))
        last = shared[-1] if shared else 0
        # An epoch has one leader: beyond the shared part the two logs hold different epochs.
        theirs, ours = ([last + 1 + 2 * n + side for n in range(4)] for side in (0, 1))
        leader_epochs = shared + sorted(rng.choices(theirs, k=rng.randrange(4)))
        follower_epochs = shared + sorted(rng.choices(ours, k=rng.randrange(4)))
        leader, follower = a_log(leader_epochs), a_log(follower_epochs)
        for _ in range(20):
            fit, at = leader.validate(follower.end_offset, follower.last_epoch)
            if fit is Fit.VALID:
                break
            assert fit is Fit.DIVERGING
            cut = follower.truncation_point(at)
            assert len(shared) <= cut < follower.end_offset
            follower.truncate(cut)
        assert follower_epochs[: follower.end_offset] == leader_epochs[: follower.end_offset]


def test_who_is_behind_the_start_of_the_log_gets_the_latest_snapshot() -> None:
    log = LogShape(LogState(OffsetEpoch(10, 3), 20, ((3, 8), (5, 15)), snapshot_id=OffsetEpoch(17, 5)))
    for offset, epoch in ((0, 0), (9, 3), (10, 2), (12, 2)):
        assert log.validate(offset, epoch) == (Fit.SNAPSHOT, OffsetEpoch(17, 5)), (offset, epoch)
    for offset, epoch in ((10, 3), (15, 3), (16, 5), (20, 5)):
        assert log.validate(offset, epoch).fit is Fit.VALID, (offset, epoch)
    assert log.validate(16, 3) == (Fit.DIVERGING, OffsetEpoch(15, 3))
    assert log.validate(25, 5) == (Fit.DIVERGING, OffsetEpoch(20, 5))
    assert log.high_watermark == 17
