"""The leader's bookkeeping: who is in sync, and what is committed."""

from __future__ import annotations

import random

import pytest

from broker.replication.leader import (
    IsrMember,
    IsrResult,
    LeaderState,
    StaleBrokerEpoch,
    UnknownReplica,
)

LAG_MS = 1_000
ELIGIBLE = {1: 11, 2: 12, 3: 13}


def leader(isr: tuple[int, ...] = (1, 2, 3), *, end: int = 0, replicas: tuple[int, ...] = (1, 2, 3)) -> LeaderState:
    state = LeaderState(1, LAG_MS)
    state.on_metadata(0, replicas=replicas, isr=isr, leader_epoch=5, partition_epoch=7, log_end_offset=end)
    return state


def fetched(state: LeaderState, replica: int, offset: int, *, end: int, now: int = 0, epoch: int | None = None) -> bool:
    return state.on_fetch(
        now,
        replica,
        broker_epoch=ELIGIBLE[replica] if epoch is None else epoch,
        fetch_offset=offset,
        log_start_offset=0,
        log_end_offset=end,
    )


def committed(state: LeaderState, end: int, *, now: int = 0, min_isr: int = 1) -> int:
    return state.committed_offset(now, end, ELIGIBLE, min_isr)


def test_what_all_in_sync_replicas_have_is_committed() -> None:
    state = leader()
    assert committed(state, 10) == -1  # nobody has fetched: it is not known what they have
    assert fetched(state, 2, 10, end=10)
    assert committed(state, 10) == -1
    assert fetched(state, 3, 4, end=10)
    assert committed(state, 10) == 4
    assert not fetched(state, 3, 4, end=10)  # it has not moved
    assert fetched(state, 3, 10, end=10)
    assert committed(state, 10) == 10


@pytest.mark.parametrize("seed", range(20))
def test_an_idle_fetch_leaves_what_any_other_does(seed: int) -> None:
    """The naive twin takes the long way every time. The short one is for the log end, while that stays where it is."""
    dice = random.Random(seed)
    short, long = leader(isr=(1, 2)), leader(isr=(1, 2))
    end, isr, partition_epoch, taken = 0, (1, 2), 7, 0
    last: dict[int, int] = {}
    for now in range(0, 3_000, 10):
        if dice.random() < 0.1:
            end += dice.randint(1, 3)
        if dice.random() < 0.05:
            partition_epoch += 1
            isr, replicas = dice.choice([((1, 2), (1, 2)), ((1, 2, 3), (1, 2, 3)), ((1,), (1, 2, 3))])
            last.clear()
            for state in (short, long):
                state.on_metadata(
                    now, replicas=replicas, isr=isr, leader_epoch=5, partition_epoch=partition_epoch, log_end_offset=end
                )
        replica = dice.choice([2, 3])
        offset, start = dice.choice([end, end, dice.randint(0, end)]), dice.choice([0, 0, 0, 1])
        epoch = dice.choice([12] * 20 + [11, 13, -1])
        outcomes: list[object] = []
        for state in (short, long):
            try:
                is_idle = state is short and offset == end == last.get(replica)
                if is_idle and state.on_idle_fetch(now, replica, epoch, offset, start):
                    assert replica in isr
                    taken += 1
                    outcomes.append(False)
                    continue
                moved = state.on_fetch(
                    now, replica, broker_epoch=epoch, fetch_offset=offset, log_start_offset=start, log_end_offset=end
                )
                outcomes.append(moved)
            except (StaleBrokerEpoch, UnknownReplica) as error:
                outcomes.append(str(error))
        last[replica] = end
        assert outcomes[0] == outcomes[1]
        assert short.followers == long.followers
    assert taken > 5


def test_followers_outside_the_isr_do_not_hold_it_back() -> None:
    state = leader((1, 2))
    fetched(state, 2, 10, end=10)
    assert committed(state, 10) == 10
    fetched(state, 3, 2, end=10)
    assert committed(state, 10) == 10


def test_a_follower_about_to_join_is_waited_for() -> None:
    """Otherwise a busy leader would always be a step ahead of it, and it could never join."""
    state = leader((1, 2))
    fetched(state, 2, 12, end=12)
    fetched(state, 3, 10, end=10)
    assert committed(state, 12) == 10
    assert state.committed_offset(0, 12, {1: 11, 2: 12}, 1) == 12  # not if it is fenced
    assert committed(state, 12, now=LAG_MS + 1) == 12  # nor if that is long ago


def test_nothing_is_committed_below_min_insync_replicas() -> None:
    state = leader((1,))
    assert committed(state, 10, min_isr=2) == -1
    assert committed(state, 10, min_isr=1) == 10
    alone = leader((1,), replicas=(1,))
    assert committed(alone, 10, min_isr=2) == 10  # a topic cannot demand more replicas than it has


def test_a_follower_joins_at_the_high_watermark_and_the_start_of_the_epoch() -> None:
    state = leader((1, 2), end=20)
    fetched(state, 3, 10, end=20)
    assert state.maybe_expand(3, 10, ELIGIBLE, 11) is None  # the epoch began at 20
    fetched(state, 3, 20, end=30)
    assert state.maybe_expand(3, 25, ELIGIBLE, 11) is None  # 25 may have been read
    change = state.maybe_expand(3, 20, ELIGIBLE, 11)
    assert change is not None
    assert change.isr == (IsrMember(1, 11), IsrMember(2, -1), IsrMember(3, 13))
    assert (change.leader_epoch, change.partition_epoch) == (5, 7)
    assert state.isr == {1, 2}
    assert state.maximal_isr == {1, 2, 3}
    assert state.maybe_expand(3, 20, ELIGIBLE, 11) is None  # one change at a time


@pytest.mark.parametrize("eligible", [{1: 11, 2: 12}, {1: 11, 2: 12, 3: 14}])
def test_only_the_broker_that_is_registered_may_join(eligible: dict[int, int]) -> None:
    """Fenced, or another incarnation than the one that fetched (KIP-903)."""
    state = leader((1, 2))
    fetched(state, 3, 0, end=0)
    assert state.maybe_expand(3, 0, eligible, 11) is None


def test_a_follower_that_cannot_tell_its_epoch_may_join() -> None:
    state = leader((1, 2))
    fetched(state, 3, 0, end=0, epoch=-1)
    assert state.maybe_expand(3, 0, ELIGIBLE, 11) is not None


def test_an_earlier_incarnation_is_refused() -> None:
    state = leader()
    fetched(state, 3, 5, end=5, epoch=13)
    with pytest.raises(StaleBrokerEpoch):
        fetched(state, 3, 4, end=5, epoch=12)
    assert state.followers[3].log_end_offset == 5


def test_a_stranger_is_refused() -> None:
    with pytest.raises(UnknownReplica):
        state = leader()
        state.on_fetch(0, 4, broker_epoch=14, fetch_offset=0, log_start_offset=0, log_end_offset=0)


def test_an_expansion_counts_from_the_moment_it_is_asked_for() -> None:
    state = leader((1, 2))
    fetched(state, 2, 10, end=10)
    fetched(state, 3, 10, end=10)
    change = state.maybe_expand(3, 10, ELIGIBLE, 11)
    assert change is not None
    fetched(state, 2, 15, end=15)
    assert committed(state, 15) == 10  # perhaps broker 3 is in the ISR already
    assert state.on_result(change, IsrResult(5, 8, (1, 2, 3)))
    assert state.isr == state.maximal_isr == {1, 2, 3}
    assert state.partition_epoch == 8


def test_a_shrink_counts_when_it_is_confirmed() -> None:
    state = leader(end=10)
    fetched(state, 2, 10, end=10, now=500)
    assert state.maybe_shrink(LAG_MS, 10, 11) is None
    change = state.maybe_shrink(LAG_MS + 1, 10, 11)
    assert change is not None
    assert change.broker_ids == (1, 2)
    assert committed(state, 10, now=LAG_MS + 1) == -1  # broker 3 may still be elected
    assert state.maybe_shrink(LAG_MS + 1, 10, 11) is None
    assert state.on_result(change, IsrResult(5, 8, (1, 2)))
    assert committed(state, 10, now=LAG_MS + 1) == 10


def test_a_level_follower_stays_however_long_nothing_is_written() -> None:
    state = leader()
    fetched(state, 2, 0, end=0)
    fetched(state, 3, 0, end=0)
    assert state.maybe_shrink(100 * LAG_MS, 0, 11) is None


def test_a_follower_that_always_asks_a_moment_too_early_is_in_sync() -> None:
    """The log grows between any two of its fetches; each time it has what was there at the one before."""
    state = leader((1, 2), replicas=(1, 2))
    for step in range(1, 20):
        now = step * LAG_MS // 2
        fetched(state, 2, 10 * (step - 1), end=10 * step, now=now)
        assert state.maybe_shrink(now, 10 * step, 11) is None
    assert state.maybe_shrink(now + 2 * LAG_MS, 190, 11) is not None


def test_a_refused_change_is_taken_back() -> None:
    state = leader((1, 2))
    fetched(state, 3, 0, end=0)
    change = state.maybe_expand(3, 0, ELIGIBLE, 11)
    assert change is not None
    state.on_not_attempted(change)
    assert state.maximal_isr == {1, 2}
    assert state.pending is None
    assert state.maybe_expand(3, 0, ELIGIBLE, 11) is not None


def test_answers_and_metadata_of_the_past_are_ignored() -> None:
    state = leader((1, 2))
    fetched(state, 3, 0, end=0)
    change = state.maybe_expand(3, 0, ELIGIBLE, 11)
    assert change is not None
    assert not state.on_result(change, IsrResult(4, 9, (1,)))
    assert state.on_result(change, IsrResult(5, 8, (1, 2, 3)))
    kept = state.on_metadata(0, replicas=(1, 2, 3), isr=(1, 2), leader_epoch=5, partition_epoch=7, log_end_offset=0)
    assert not kept  # the metadata comes later than the answer to the change it contains
    assert state.isr == {1, 2, 3}


def test_metadata_ends_a_change_under_way() -> None:
    state = leader((1, 2))
    fetched(state, 3, 0, end=0)
    change = state.maybe_expand(3, 0, ELIGIBLE, 11)
    state.on_metadata(0, replicas=(1, 2, 3), isr=(1,), leader_epoch=5, partition_epoch=8, log_end_offset=0)
    assert change is not None
    assert state.pending is None
    assert state.maximal_isr == {1}
    assert state.maybe_expand(3, 0, ELIGIBLE, 11) is not None


def test_in_a_new_epoch_members_have_their_time_again() -> None:
    state = leader(end=10)
    state.on_metadata(9 * LAG_MS, replicas=(1, 2, 3), isr=(1, 2), leader_epoch=6, partition_epoch=8, log_end_offset=30)
    assert state.epoch_start_offset == 30
    assert state.maybe_shrink(10 * LAG_MS, 30, 11) is None
    change = state.maybe_shrink(10 * LAG_MS + 1, 30, 11)
    assert change is not None
    assert change.broker_ids == (1,)


def test_what_followers_had_before_another_led_counts_no_more() -> None:
    """A leader that lagged in the metadata saw its epochs 5 and 7 without the 6 between them, in which another led and
    the follower cut off what it had. Where it had been was taken for an acknowledgement."""
    state = leader((1, 2), end=100)
    fetched(state, 2, 100, end=100)
    assert committed(state, 100) == 100
    state.on_metadata(0, replicas=(1, 2), isr=(1, 2), leader_epoch=6, partition_epoch=8, log_end_offset=100)
    assert committed(state, 100) == 100, "it led on, and nobody else"
    state.on_metadata(0, replicas=(1, 2), isr=(1, 2), leader_epoch=8, partition_epoch=10, log_end_offset=100)
    assert committed(state, 100) == -1
    fetched(state, 2, 90, end=100)
    assert committed(state, 100) == 90


def test_removed_replicas_are_forgotten() -> None:
    state = leader()
    fetched(state, 3, 0, end=0)
    state.on_metadata(0, replicas=(1, 2), isr=(1, 2), leader_epoch=5, partition_epoch=8, log_end_offset=0)
    assert state.replica_count == 2
    with pytest.raises(UnknownReplica):
        fetched(state, 3, 0, end=0)
