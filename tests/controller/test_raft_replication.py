"""Fetches on both sides, the high watermark, check quorum, snapshots."""

from __future__ import annotations

from typing import Any

import pytest
from support.raft_node import SETTINGS, Hand, endpoints, key, static_voters, voters

from controller.raft.types import (
    Answer,
    Batch,
    BeginQuorumEpoch,
    ElectionState,
    Failed,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
    Flushed,
    LogStartMoved,
    LogState,
    NotLeader,
    OffsetEpoch,
    Propose,
    RaftError,
    Resign,
    Send,
    SnapshotInstalled,
    SnapshotTaken,
    Truncate,
    Vote,
    VotersChange,
    WriteSnapshotPart,
)
from protocol.errors import ErrorCode


@pytest.fixture
def leader() -> Hand:
    hand = Hand()
    hand.lead()
    return hand


@pytest.fixture
def follower() -> Hand:
    """Of node 2 in epoch 5, its fetch on the way."""
    log = LogState(OffsetEpoch(0, 0), 10, ((1, 0), (3, 4)), ((-1, voters(1, 2, 3)),), ((-1, 1),))
    return Hand(log=log, election=ElectionState(5, 2, None))


def last_fetch(hand: Hand) -> Send:
    return hand.sent(Fetch)[-1]


def fetched(**changes: Any) -> FetchAnswer:
    return FetchAnswer(ErrorCode.NONE, 5, 2)._replace(**changes)


# The leader


def test_the_high_watermark_needs_a_majority_that_has_it_on_disk(leader: Hand) -> None:
    before = leader.node.high_watermark
    leader.propose()
    leader.fetch(2)
    assert leader.node.high_watermark == before, "the leader's own copy is not synced yet"
    leader.flush()
    assert leader.effects.high_watermark == leader.node.log_end_offset


def test_nothing_is_committed_before_a_record_of_the_leaders_own_epoch() -> None:
    log = LogState(OffsetEpoch(0, 0), 10, ((1, 0),), ((-1, voters(1, 2, 3)),), ((-1, 1),))
    hand = Hand(log=log, election=ElectionState(1))
    hand.lead(is_ready=False)
    hand.flush()
    hand.fetch(2, fetch_offset=10, last_fetched_epoch=1)
    hand.fetch(3, fetch_offset=10, last_fetched_epoch=1)
    assert hand.node.high_watermark == 0
    assert not hand.node.leadership.is_ready
    hand.fetch(2)
    assert hand.node.high_watermark == hand.node.log_end_offset
    assert hand.node.leadership.is_ready


def test_observers_do_not_count(leader: Hand) -> None:
    before = leader.node.high_watermark
    leader.propose()
    leader.flush()
    leader.fetch(8)
    leader.fetch(9)
    assert leader.node.high_watermark == before
    assert [state.key for state in leader.node.observer_states(leader.now)] == [key(8), key(9)]


def test_a_replica_with_another_disk_is_not_the_voter(leader: Hand) -> None:
    before = leader.node.high_watermark
    leader.propose()
    leader.flush()
    leader.fetch(2, replica=key(2, disk=1))
    assert leader.node.high_watermark == before


def test_a_static_voter_is_known_by_its_id() -> None:
    hand = Hand(voter_set=(), static_voters=static_voters(1, 2, 3))
    hand.lead()
    assert hand.node.high_watermark == 1


def test_a_fetch_waits_for_records(leader: Hand) -> None:
    known = leader.node.high_watermark
    assert leader.fetch(2, max_wait_ms=500, high_watermark=known) is None
    leader.now += 100
    leader.propose()
    answer = leader.reply_to(("fetch", 2), leader.effects)
    assert isinstance(answer, FetchAnswer)
    assert answer.read_from == known


def test_a_fetch_waits_for_a_high_watermark_the_follower_does_not_know(leader: Hand) -> None:
    known = leader.node.high_watermark
    leader.propose()
    leader.flush()
    assert leader.fetch(8, max_wait_ms=500, high_watermark=known) is None
    assert leader.fetch(9, max_wait_ms=500) is None
    leader.fetch(2)
    answer = leader.reply_to(("fetch", 8), leader.effects)
    assert isinstance(answer, FetchAnswer)
    assert (answer.read_from, answer.high_watermark) == (None, known + 1)
    assert leader.reply_to(("fetch", 9), leader.effects) is None, "a version that does not say what it knows"


def test_a_waiting_fetch_is_answered_empty_when_its_time_is_up(leader: Hand) -> None:
    assert leader.fetch(2, max_wait_ms=500, high_watermark=leader.node.high_watermark) is None
    assert leader.reply_to(("fetch", 2), leader.wait(499)) is None
    answer = leader.reply_to(("fetch", 2), leader.wait(1))
    assert isinstance(answer, FetchAnswer)
    assert (answer.error, answer.read_from) == (ErrorCode.NONE, None)


def test_waiting_fetches_hear_that_the_leader_is_gone(leader: Hand) -> None:
    leader.fetch(2, max_wait_ms=500, high_watermark=leader.node.high_watermark)
    answer = leader.reply_to(("fetch", 2), leader.step(Resign()))
    assert isinstance(answer, FetchAnswer)
    assert answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_refused_fetches(leader: Hand) -> None:
    epoch = leader.node.epoch
    assert leader.fetch(2, epoch=epoch - 1).error is ErrorCode.FENCED_LEADER_EPOCH
    assert leader.fetch(2, epoch=epoch + 1).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert leader.fetch(2, fetch_offset=-1).error is ErrorCode.INVALID_REQUEST
    leader.step(Resign())
    refused = leader.fetch(2)
    assert refused.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_diverging_follower_is_told_where_and_does_not_count(leader: Hand) -> None:
    leader.propose()
    leader.flush()
    before = leader.node.high_watermark
    answer = leader.fetch(2, fetch_offset=50, last_fetched_epoch=leader.node.epoch)
    assert isinstance(answer, FetchAnswer)
    assert answer.diverging == OffsetEpoch(leader.node.log_end_offset, leader.node.epoch)
    assert leader.node.high_watermark == before


def test_a_follower_behind_the_start_is_sent_to_the_snapshot(leader: Hand) -> None:
    leader.propose()
    leader.flush()
    leader.fetch(2)
    snapshot_id = OffsetEpoch(leader.node.high_watermark, leader.node.epoch)
    leader.step(SnapshotTaken(snapshot_id))
    assert leader.fetch(3, fetch_offset=0, last_fetched_epoch=0).snapshot_id is None, "the log still has it"
    leader.step(LogStartMoved(snapshot_id))
    assert leader.fetch(3, fetch_offset=0, last_fetched_epoch=0).snapshot_id == snapshot_id
    assert leader.node.voters_at(snapshot_id.offset) == voters(1, 2, 3)
    part = leader.ask(FetchSnapshot(leader.node.epoch, key(3), snapshot_id, 0))
    assert isinstance(part, FetchSnapshotAnswer)
    assert (part.error, part.snapshot_id, part.position) == (ErrorCode.NONE, snapshot_id, 0)
    later = FetchSnapshot(leader.node.epoch, key(3), OffsetEpoch(99, 1), 0)
    assert leader.ask(later).error is ErrorCode.SNAPSHOT_NOT_FOUND
    assert leader.ask(later._replace(epoch=0)).error is ErrorCode.FENCED_LEADER_EPOCH


def test_a_snapshot_of_what_is_not_committed_is_refused(leader: Hand) -> None:
    leader.propose()
    with pytest.raises(RaftError, match="not committed"):
        leader.step(SnapshotTaken(OffsetEpoch(leader.node.log_end_offset, leader.node.epoch)))


def test_a_leader_that_no_majority_fetches_from_resigns(leader: Hand) -> None:
    check_ms = SETTINGS.fetch_timeout_ms * 3 // 2
    for _ in range(5):
        leader.wait(check_ms - 100)
        leader.fetch(2)
        assert leader.node.is_leader, "one follower is a majority with the leader"
    leader.wait(check_ms)
    assert leader.node.role_name == "Resigned"


def test_observers_do_not_keep_a_leader_in_office(leader: Hand) -> None:
    for _ in range(10):
        leader.wait(SETTINGS.fetch_timeout_ms // 4)
        leader.fetch(8)
    assert not leader.node.is_leader


def test_voters_that_do_not_fetch_are_told_who_leads_again_and_again(leader: Hand) -> None:
    told = []
    for _ in range(4):
        told += leader.sent(BeginQuorumEpoch, leader.wait(SETTINGS.fetch_timeout_ms // 2))
        for sent in leader.sent(BeginQuorumEpoch):
            leader.answer(sent, Answer(ErrorCode.NONE, leader.node.epoch, 1))
        leader.fetch(2)
    assert [sent.peer for sent in told].count(3) >= 2
    assert told[0].request.leader_endpoints == endpoints(1)


def test_proposals_to_the_wrong_node_or_place_change_nothing(leader: Hand) -> None:
    end, epoch = leader.node.log_end_offset, leader.node.epoch
    for batch in (Batch(end + 1, end + 2, epoch), Batch(end, end + 1, epoch - 1)):
        with pytest.raises(NotLeader):
            leader.step(Propose(batch))
    with pytest.raises(NotLeader):
        Hand().step(Propose(Batch(0, 1, 0)))
    assert leader.node.log_end_offset == end


def test_what_describe_quorum_shows(leader: Hand) -> None:
    leader.now += 50
    leader.propose()
    leader.now += 50
    now = leader.now
    leader.fetch(2)
    states = {state.key.id: state for state in leader.node.voter_states(leader.now)}
    end = leader.node.log_end_offset
    assert states[1] == (key(1), end, now, now)
    assert states[2] == (key(2), end, now, now)
    assert states[3].log_end_offset == end - 1


# The follower


def test_a_follower_appends_and_asks_for_more_when_that_is_durable(follower: Hand) -> None:
    sent = last_fetch(follower)
    assert (sent.request.fetch_offset, sent.request.last_fetched_epoch) == (10, 3)
    batch = Batch(10, 12, 5, payload="new")
    follower.answer(sent, fetched(batches=(batch,), high_watermark=11))
    assert follower.appended() == [batch]
    assert follower.effects.high_watermark == 11
    following = last_fetch(follower)
    assert following.after_persist
    assert (following.request.fetch_offset, following.request.last_fetched_epoch) == (12, 5)
    assert following.request.high_watermark == 11


def test_a_follower_takes_no_answer_twice_and_none_to_another_question(follower: Hand) -> None:
    sent = last_fetch(follower)
    follower.answer(sent, fetched(batches=(Batch(10, 12, 5),)))
    follower.answer(sent, fetched(batches=(Batch(10, 12, 5),)))
    assert not follower.appended()
    equal = last_fetch(follower) if follower.sent(Fetch) else None
    assert equal is None
    assert follower.node.log_end_offset == 12


def test_a_diverging_follower_cuts_and_asks_again(follower: Hand) -> None:
    follower.answer(last_fetch(follower), fetched(diverging=OffsetEpoch(3, 1)))
    assert follower.effects.persist == [Truncate(3)]
    assert last_fetch(follower).request[2:4] == (3, 1)


def test_what_is_committed_is_never_cut(follower: Hand) -> None:
    follower.answer(last_fetch(follower), fetched(high_watermark=8))
    with pytest.raises(RaftError, match="below the high watermark 8"):
        follower.answer(last_fetch(follower), fetched(diverging=OffsetEpoch(3, 1)))


def test_the_high_watermark_is_not_ahead_of_the_log_and_does_not_fall(follower: Hand) -> None:
    follower.answer(last_fetch(follower), fetched(high_watermark=50))
    assert follower.node.high_watermark == 10
    follower.answer(last_fetch(follower), fetched(high_watermark=4))
    assert follower.node.high_watermark == 10


def test_a_truncated_voter_set_no_longer_counts() -> None:
    log = LogState(OffsetEpoch(0, 0), 10, ((1, 0), (3, 4)), ((-1, voters(1, 2, 3)),), ((-1, 1),))
    hand = Hand(log=log, election=ElectionState(5, 2, None))
    batch = Batch(10, 11, 5, (VotersChange(voters(1, 2, 3, 4)),))
    hand.answer(last_fetch(hand), fetched(batches=(batch,)))
    assert hand.node.voters == voters(1, 2, 3, 4)
    hand.answer(last_fetch(hand), fetched(diverging=OffsetEpoch(10, 3)))
    assert hand.node.voters == voters(1, 2, 3)


def test_a_follower_without_leader_stands(follower: Hand) -> None:
    follower.wait(SETTINGS.fetch_timeout_ms * 9 // 10 - 1)
    assert follower.node.role_name == "Follower"
    effects = follower.wait(SETTINGS.fetch_timeout_ms // 10 + 1)
    assert follower.node.role_name == "Prospective"
    assert follower.sent(Vote, effects)


@pytest.mark.parametrize(("refused", "role"), [(False, "Follower"), (True, "Prospective")])
def test_a_leader_whose_process_is_gone_is_not_waited_for(follower: Hand, refused: bool, role: str) -> None:
    """A killed process refuses connections at once; waiting for the whole fetch time-out would add a second or two to
    every failover. A request without an answer says less."""
    sent = last_fetch(follower)
    follower.step(Failed(sent.peer, sent.request, refused))
    follower.wait(SETTINGS.election_timeout_ms // 5)
    assert follower.node.role_name == role


def test_a_leader_that_is_there_again_is_followed_on(follower: Hand) -> None:
    sent = last_fetch(follower)
    follower.step(Failed(sent.peer, sent.request, refused=True))
    again = [one for one in follower.sent(Fetch, follower.wait(SETTINGS.retry_backoff_ms)) if one.peer == 2]
    follower.answer(again[-1], fetched())
    follower.wait(SETTINGS.election_timeout_ms)
    assert follower.node.role_name == "Follower"


def test_a_follower_learns_of_a_new_leader_from_whoever_answers(follower: Hand) -> None:
    answer = FetchAnswer(ErrorCode.FENCED_LEADER_EPOCH, 9, 3, leader_endpoints=endpoints(3))
    follower.answer(last_fetch(follower), answer)
    assert (follower.node.leader_id, follower.node.epoch) == (3, 9)
    assert last_fetch(follower).peer == 3
    assert follower.node.endpoints_of(3) == endpoints(3)


# Snapshots


def start_download(hand: Hand) -> Send:
    hand.answer(last_fetch(hand), fetched(snapshot_id=OffsetEpoch(100, 4)))
    return hand.sent(FetchSnapshot)[0]


def test_a_snapshot_is_fetched_part_by_part_and_replaces_the_log(follower: Hand) -> None:
    sent = start_download(follower)
    snapshot_id = OffsetEpoch(100, 4)
    assert sent.request == FetchSnapshot(5, key(1), snapshot_id, 0)
    follower.answer(sent, FetchSnapshotAnswer(ErrorCode.NONE, 5, 2, snapshot_id, 0, 10, b"sixsix"))
    assert follower.effects.persist == [WriteSnapshotPart(snapshot_id, 0, 10, b"sixsix")]
    sent = follower.sent(FetchSnapshot)[0]
    assert sent.request.position == 6
    follower.answer(sent, FetchSnapshotAnswer(ErrorCode.NONE, 5, 2, snapshot_id, 6, 10, b"four"))
    assert not follower.effects.send
    effects = follower.wait(10 * SETTINGS.fetch_timeout_ms)
    assert not effects.send, "until it is installed nobody knows the log: no fetch, no election"
    follower.step(SnapshotInstalled(snapshot_id, voters(1, 2, 4), 1))
    assert (follower.node.high_watermark, follower.node.log_end_offset) == (100, 100)
    assert follower.node.voters == voters(1, 2, 4)
    assert last_fetch(follower).request[2:4] == (100, 4)


def test_a_snapshot_that_is_gone_is_asked_for_anew(follower: Hand) -> None:
    sent = start_download(follower)
    follower.answer(sent, FetchSnapshotAnswer(ErrorCode.SNAPSHOT_NOT_FOUND, 5, 2, OffsetEpoch(100, 4)))
    effects = follower.wait(SETTINGS.retry_backoff_ms + 1)
    assert follower.sent(Fetch, effects)


def test_a_snapshot_older_than_what_is_committed_is_not_taken(follower: Hand) -> None:
    follower.answer(last_fetch(follower), fetched(high_watermark=8))
    follower.answer(last_fetch(follower), fetched(snapshot_id=OffsetEpoch(7, 3)))
    assert not follower.sent(FetchSnapshot, follower.wait(100))


def test_a_flush_report_is_not_believed_beyond_the_log(leader: Hand) -> None:
    leader.step(Flushed(1_000))
    leader.propose()
    leader.fetch(2)
    assert leader.node.high_watermark == leader.node.log_end_offset - 1
