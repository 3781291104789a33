"""Votes, pre-votes, epochs, and what a node is after a restart."""

from __future__ import annotations

import pytest
from support.raft_node import SETTINGS, Hand, endpoints, key, static_voters, voters

from controller.raft.quorum import IllegalTransition
from controller.raft.types import (
    NOBODY,
    Answer,
    BeginQuorumEpoch,
    ElectionState,
    EndQuorumEpoch,
    Failed,
    Fetch,
    FetchAnswer,
    LeaderChange,
    LogState,
    OffsetEpoch,
    RaftError,
    ReplicaKey,
    Resign,
    Vote,
)
from protocol.errors import ErrorCode

EMPTY = OffsetEpoch(0, 0)


def vote(candidate: int, epoch: int, *, pre: bool = False, last: OffsetEpoch = EMPTY, voter: int = 1) -> Vote:
    return Vote(epoch, key(candidate), key(voter), last, pre)


def test_a_voter_without_leader_asks_first_whether_it_would_be_elected() -> None:
    hand = Hand()
    sent = hand.stand()
    assert [one.peer for one in sent] == [2, 3]
    assert all(one.request.pre_vote and one.request.epoch == 0 for one in sent)
    assert hand.node.epoch == 0, "a pre-vote must not cost an epoch"
    hand.grant(sent[0])
    assert (hand.node.role_name, hand.node.epoch) == ("Candidate", 1)
    assert ElectionState(1, NOBODY, key(1)) in hand.effects.persist
    assert all(one.after_persist and not one.request.pre_vote for one in hand.sent(Vote))


def test_an_elected_leader_writes_its_epochs_first_record() -> None:
    effects = Hand().lead(is_ready=False)
    batch = Hand().appended(effects)[0]
    assert isinstance(batch.control[0], LeaderChange)
    assert batch.control[0].voters == (1, 2, 3)
    assert set(batch.control[0].granting_voters) == {1, 2}
    assert effects.leadership is not None and not effects.leadership.is_ready


def test_where_a_peer_knows_no_pre_vote_there_is_none() -> None:
    hand = Hand()
    sent = hand.stand()
    hand.answer(sent[0], Answer(ErrorCode.UNSUPPORTED_VERSION))
    assert hand.node.role_name == "Candidate"


def test_a_lost_pre_vote_ends_without_a_new_epoch() -> None:
    hand = Hand()
    for sent in hand.stand():
        hand.grant(sent, granted=False)
    assert (hand.node.role_name, hand.node.epoch) == ("Unattached", 0)


def test_a_candidate_that_lost_waits_for_its_time_out() -> None:
    hand = Hand()
    for sent in hand.be_candidate():
        hand.grant(sent, granted=False)
    assert hand.node.role_name == "Candidate"
    hand.wait(2 * SETTINGS.election_timeout_ms)
    assert hand.node.role_name == "Prospective"


def test_votes_are_asked_for_again_where_they_failed() -> None:
    hand = Hand()
    sent = hand.be_candidate()[0]
    hand.step(Failed(sent.peer, sent.request))
    assert sent.peer in [one.peer for one in hand.sent(Vote, hand.wait(SETTINGS.retry_backoff_ms + 1))]


def test_one_vote_in_an_epoch_and_it_is_durable_first() -> None:
    hand = Hand()
    answer = hand.ask(vote(2, 5))
    assert answer is not None and answer.granted
    assert hand.effects.persist[-1] == ElectionState(5, NOBODY, key(2))
    assert all(message.after_persist for message in hand.effects.send)
    assert not hand.ask(vote(3, 5)).granted
    assert hand.ask(vote(2, 5)).granted, "the same candidate may ask twice"
    assert hand.node.role_name == "Voted"


def test_a_vote_survives_a_restart() -> None:
    hand = Hand(election=ElectionState(5, NOBODY, key(2)))
    assert not hand.ask(vote(3, 5)).granted
    assert hand.ask(vote(2, 5)).granted


@pytest.mark.parametrize(
    ("last", "granted"),
    [
        (OffsetEpoch(10, 3), True),
        (OffsetEpoch(11, 3), True),
        (OffsetEpoch(9, 3), False),
        (OffsetEpoch(50, 2), False),
        (OffsetEpoch(1, 4), True),
    ],
)
@pytest.mark.parametrize("pre", [True, False])
def test_only_a_log_that_is_not_behind_gets_a_vote(last: OffsetEpoch, granted: bool, pre: bool) -> None:
    log = LogState(OffsetEpoch(0, 0), 10, ((3, 0),), ((-1, voters(1, 2, 3)),), ((-1, 1),))
    hand = Hand(log=log)
    assert hand.ask(vote(2, 8, last=last, pre=pre)).granted is granted


def test_refused_votes() -> None:
    hand = Hand(election=ElectionState(5))
    assert hand.ask(vote(2, 4)).error is ErrorCode.FENCED_LEADER_EPOCH
    assert hand.ask(vote(2, 6, last=OffsetEpoch(3, 6))).error is ErrorCode.INVALID_REQUEST
    assert hand.ask(vote(2, 6, last=OffsetEpoch(-1, 1))).error is ErrorCode.INVALID_REQUEST
    assert hand.node.epoch == 5
    assert hand.ask(vote(2, 6, voter=3)).error is ErrorCode.INVALID_VOTER_KEY
    other_disk = vote(2, 6)._replace(voter=key(1, disk=1))
    assert hand.ask(other_disk).error is ErrorCode.INVALID_VOTER_KEY
    assert hand.node.role_name == "Unattached"


def test_a_follower_that_hears_its_leader_grants_no_pre_vote() -> None:
    hand = Hand()
    hand.ask(BeginQuorumEpoch(3, 2, key(1), endpoints(2)))
    assert hand.node.role_name == "Follower"
    (fetch,) = hand.sent(Fetch)
    assert hand.ask(vote(3, 3, pre=True)).granted, "it has not fetched yet, so it cannot say that the leader lives"
    hand.answer(fetch, FetchAnswer(ErrorCode.NONE, 3, 2))
    assert not hand.ask(vote(3, 3, pre=True)).granted
    assert not hand.ask(vote(3, 3)).granted
    assert hand.ask(vote(3, 4)).granted, "a higher epoch is another matter"


def test_who_led_does_not_act_in_that_epoch_after_a_restart() -> None:
    hand = Hand(election=ElectionState(7, 1, key(1)))
    assert hand.node.role_name == "Resigned"
    assert hand.node.leader_id == NOBODY
    assert [one.request for one in hand.sent(EndQuorumEpoch)] == [EndQuorumEpoch(7, key(1), (), endpoints(1))] * 2
    assert not hand.ask(vote(2, 7)).granted
    hand.wait(2 * SETTINGS.election_timeout_ms)
    assert hand.node.epoch == 8


def test_who_stood_stands_again_after_a_restart() -> None:
    hand = Hand(election=ElectionState(7, NOBODY, key(1)))
    assert (hand.node.role_name, hand.node.epoch) == ("Candidate", 7)


def test_who_followed_follows() -> None:
    hand = Hand(election=ElectionState(7, 2, None))
    assert (hand.node.role_name, hand.node.leader_id) == ("Follower", 2)
    assert hand.sent(Fetch)[0].peer == 2


def test_the_logs_epoch_counts_if_it_is_later_than_the_remembered_one() -> None:
    log = LogState(OffsetEpoch(0, 0), 10, ((9, 0),), ((-1, voters(1, 2, 3)),), ((-1, 1),))
    hand = Hand(log=log, election=ElectionState(7, 2, None))
    assert (hand.node.role_name, hand.node.epoch, hand.node.leader_id) == ("Unattached", 9, NOBODY)
    assert ElectionState(9) in hand.effects.persist


def test_a_quorum_of_one_leads_in_its_first_step() -> None:
    hand = Hand(voter_set=voters(1))
    assert hand.node.is_leader
    assert hand.node.epoch == 1
    hand.flush()
    assert hand.node.leadership.is_ready
    again = Hand(voter_set=voters(1), election=ElectionState(1, 1, key(1)))
    assert (again.node.role_name, again.node.epoch) == ("Leader", 2)


def test_static_voters_need_no_directory() -> None:
    hand = Hand(voter_set=(), static_voters=static_voters(1, 2, 3))
    assert hand.node.is_voter
    sent = hand.stand()
    assert sent[0].request.voter == ReplicaKey(2)
    hand.lead(is_ready=False)
    assert hand.node.is_leader and hand.node.kraft_version == 0


def test_a_broker_never_stands() -> None:
    hand = Hand(9, is_controller=False, voter_set=(), bootstrap_servers=2)
    effects = hand.wait(20_000)
    assert hand.node.role_name == "Observer"
    assert not hand.sent(Vote, effects)
    assert {one.peer for one in hand.sent(Fetch, effects)} == {-2, -3}


def test_a_leader_learns_of_a_later_epoch_and_steps_down() -> None:
    hand = Hand()
    hand.lead()
    answer = hand.ask(vote(3, hand.node.epoch + 1, last=OffsetEpoch(99, hand.node.epoch)))
    assert answer is not None and answer.granted
    assert hand.node.role_name == "Voted"


def test_two_leaders_in_an_epoch_are_not_tolerated() -> None:
    hand = Hand()
    hand.ask(BeginQuorumEpoch(3, 2, key(1), endpoints(2)))
    with pytest.raises(RaftError, match=r"Follower\(epoch=3, leader=2\).* 3 leads"):
        hand.ask(BeginQuorumEpoch(3, 3, key(1), endpoints(3)))


def test_illegal_transitions_name_both_roles() -> None:
    hand = Hand()
    quorum = hand.node._core.quorum
    with pytest.raises(IllegalTransition, match=r"Unattached\(.*cannot become Resigned\("):
        quorum.become_resigned((), 0)
    with pytest.raises(IllegalTransition, match=r"Unattached\(.* cannot become Leader"):
        quorum.become_leader(0, 0)
    hand.lead()
    with pytest.raises(IllegalTransition, match=r"Leader\(.*cannot become Prospective\("):
        quorum.become_prospective(0)
    with pytest.raises(IllegalTransition, match="epoch would fall"):
        quorum.become_unattached(0, 0)


def test_an_older_leader_is_fenced() -> None:
    hand = Hand(election=ElectionState(5))
    assert hand.ask(BeginQuorumEpoch(4, 2, key(1), endpoints(2))).error is ErrorCode.FENCED_LEADER_EPOCH
    assert hand.ask(EndQuorumEpoch(4, key(2), ())).error is ErrorCode.FENCED_LEADER_EPOCH
    assert hand.ask(BeginQuorumEpoch(6, 2, key(3), endpoints(2))).error is ErrorCode.INVALID_VOTER_KEY


def test_a_resigning_leader_names_its_successors_best_first() -> None:
    hand = Hand()
    hand.lead()
    hand.propose()
    hand.fetch(3)
    hand.step(Resign())
    sent = hand.sent(EndQuorumEpoch)
    assert [one.peer for one in sent] == [2, 3]
    assert sent[0].request.preferred == (key(3), key(2))
    assert not any(one.after_persist for one in sent), "the disk may be why it resigns"
    hand.answer(sent[0], Answer(ErrorCode.NONE, hand.node.epoch, 1))
    again = hand.sent(EndQuorumEpoch, hand.wait(SETTINGS.request_timeout_ms))
    assert {one.peer for one in again} <= {3}


@pytest.mark.parametrize(("preferred", "stands_after_ms"), [((1, 3), 0), ((3, 1), 500), ((), 0)])
def test_a_successor_stands_in_its_turn(preferred: tuple[int, ...], stands_after_ms: int) -> None:
    hand = Hand()
    hand.ask(BeginQuorumEpoch(3, 2, key(1), endpoints(2)))
    hand.ask(EndQuorumEpoch(3, key(2), tuple(key(node_id) for node_id in preferred)))
    if stands_after_ms:
        hand.wait(stands_after_ms - 1)
        assert hand.node.role_name == "Follower"
        hand.wait(1)
    assert hand.node.role_name == "Prospective"
