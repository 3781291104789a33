"""The voter set and its changes (KIP-853)."""

from __future__ import annotations

import pytest
from support.raft_node import SETTINGS, Hand, endpoints, key, static_voters, voter, voters

from controller.raft.types import (
    AddVoter,
    Answer,
    ElectionState,
    Endpoint,
    Failed,
    Fetch,
    FetchAnswer,
    KRaftVersionChange,
    LogState,
    OffsetEpoch,
    ProbeVersions,
    RemoveVoter,
    Resign,
    Tick,
    UpdateVoter,
    VersionsAnswer,
    Voter,
    VotersChange,
)
from protocol.errors import ErrorCode


@pytest.fixture
def leader() -> Hand:
    hand = Hand()
    hand.lead()
    return hand


def start_adding(hand: Hand, node_id: int = 4, *, ack_when_committed: bool = True) -> None:
    hand.fetch(node_id)
    assert hand.ask(AddVoter(voter(node_id), 1_000, ack_when_committed), "add") is None
    (probe,) = hand.sent(ProbeVersions)
    hand.answer(probe, VersionsAnswer(ErrorCode.NONE, 0, 1))


def named(hand: Hand) -> list[tuple[int, ...]]:
    return [
        tuple(one.key.id for one in record.voters)
        for batch in hand.appended()
        for record in batch.control
        if isinstance(record, VotersChange)
    ]


def test_the_first_leader_writes_the_voters_it_was_formatted_with() -> None:
    hand = Hand()
    batch = hand.appended(hand.lead(is_ready=False))[0]
    assert batch.control[1:] == (KRaftVersionChange(1), VotersChange(voters(1, 2, 3)))
    assert batch.end_offset - batch.base_offset == 3


def test_later_leaders_only_write_what_changed() -> None:
    log = LogState(OffsetEpoch(0, 0), 3, ((1, 0),), ((2, voters(1, 2, 3)),), ((1, 1),))
    same = Hand(log=log, election=ElectionState(1))
    assert len(same.appended(same.lead(is_ready=False))[0].control) == 1
    moved = Hand(log=log, election=ElectionState(1), endpoints=(Endpoint("CONTROLLER", "elsewhere", 9093),))
    control = moved.appended(moved.lead(is_ready=False))[0].control
    assert [type(record) for record in control[1:]] == [VotersChange]
    assert moved.node.voters[0].endpoints[0].host == "elsewhere"


def test_adding_a_voter(leader: Hand) -> None:
    start_adding(leader)
    assert named(leader) == [(1, 2, 3, 4)]
    assert leader.node.voters == voters(1, 2, 3, 4), "it counts from the moment it is appended"
    leader.flush()
    leader.fetch(2)
    assert leader.reply_to("add", leader.effects) is None, "two of four are no majority"
    leader.fetch(4)
    answer = leader.reply_to("add", leader.effects)
    assert isinstance(answer, Answer) and answer.error is ErrorCode.NONE


def test_adding_without_waiting_for_the_commit(leader: Hand) -> None:
    start_adding(leader, ack_when_committed=False)
    answer = leader.reply_to("add", leader.effects)
    assert answer is not None and answer.error is ErrorCode.NONE


def test_one_change_at_a_time(leader: Hand) -> None:
    start_adding(leader)
    assert leader.ask(AddVoter(voter(5), 1_000)).error is ErrorCode.REQUEST_TIMED_OUT
    assert leader.ask(RemoveVoter(key(2))).error is ErrorCode.REQUEST_TIMED_OUT
    assert leader.ask(UpdateVoter(leader.node.epoch, voter(2))).error is ErrorCode.REQUEST_TIMED_OUT
    timed_out = leader.reply_to("add", leader.wait(1_500))
    assert timed_out is not None and timed_out.error is ErrorCode.REQUEST_TIMED_OUT
    refused = leader.ask(RemoveVoter(key(2)))
    assert refused.error is ErrorCode.REQUEST_TIMED_OUT, "the client is gone, but the change is still undecided"


def test_no_change_before_the_leader_has_committed_in_its_epoch() -> None:
    hand = Hand()
    hand.lead(is_ready=False)
    assert hand.ask(AddVoter(voter(4), 1_000)).error is ErrorCode.REQUEST_TIMED_OUT
    assert hand.ask(RemoveVoter(key(2))).error is ErrorCode.REQUEST_TIMED_OUT


def test_refused_additions(leader: Hand) -> None:
    assert Hand().ask(AddVoter(voter(4), 1_000)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.ask(AddVoter(voter(2), 1_000)).error is ErrorCode.DUPLICATE_VOTER
    elsewhere = Voter(key(4), (Endpoint("OTHER", "host", 1),))
    assert leader.ask(AddVoter(elsewhere, 1_000)).error is ErrorCode.INVALID_REQUEST


def test_a_new_voter_must_be_there_caught_up_and_able(leader: Hand) -> None:
    leader.ask(AddVoter(voter(4), 1_000), "never fetched")
    leader.answer(leader.sent(ProbeVersions)[0], VersionsAnswer(ErrorCode.NONE, 0, 1))
    assert leader.reply_to("never fetched", leader.effects).error is ErrorCode.REQUEST_TIMED_OUT
    leader.fetch(4)
    leader.ask(AddVoter(voter(4), 1_000), "too old")
    leader.answer(leader.sent(ProbeVersions)[0], VersionsAnswer(ErrorCode.NONE, 0, 0))
    assert leader.reply_to("too old", leader.effects).error is ErrorCode.INVALID_REQUEST
    leader.ask(AddVoter(voter(4), 1_000), "not there")
    probe = leader.sent(ProbeVersions)[0]
    leader.step(Failed(probe.peer, probe.request))
    assert leader.reply_to("not there", leader.effects).error is ErrorCode.REQUEST_TIMED_OUT
    assert leader.node.voters == voters(1, 2, 3)


def test_removing_a_voter(leader: Hand) -> None:
    assert leader.ask(RemoveVoter(key(3)), "remove") is None
    assert named(leader) == [(1, 2)]
    leader.flush()
    leader.fetch(2)
    assert leader.reply_to("remove", leader.effects).error is ErrorCode.NONE
    assert leader.ask(RemoveVoter(key(3))).error is ErrorCode.VOTER_NOT_FOUND
    assert leader.ask(RemoveVoter(key(2, disk=1))).error is ErrorCode.VOTER_NOT_FOUND


def test_the_last_voter_stays() -> None:
    hand = Hand(voter_set=voters(1))
    hand.flush()
    assert hand.ask(RemoveVoter(key(1))).error is ErrorCode.INVALID_REQUEST


def test_a_leader_that_removes_itself_leaves_when_that_is_committed(leader: Hand) -> None:
    leader.ask(RemoveVoter(key(1)), "remove")
    leader.flush()
    assert leader.node.is_leader
    leader.fetch(2)
    assert leader.node.is_leader, "it does not count itself any more"
    leader.fetch(3)
    assert leader.reply_to("remove", leader.effects).error is ErrorCode.NONE
    assert leader.node.role_name == "Resigned"
    leader.wait(10_000)
    assert leader.node.role_name == "Observer"


def test_a_change_that_is_cut_short_by_resigning_is_answered(leader: Hand) -> None:
    start_adding(leader)
    answer = leader.reply_to("add", leader.step(Resign()))
    assert answer is not None and answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_voter_that_moved(leader: Hand) -> None:
    epoch = leader.node.epoch
    moved = Voter(key(2), (Endpoint("CONTROLLER", "elsewhere", 9093),))
    assert leader.ask(UpdateVoter(epoch - 1, moved)).error is ErrorCode.FENCED_LEADER_EPOCH
    assert leader.ask(UpdateVoter(epoch, voter(4))).error is ErrorCode.VOTER_NOT_FOUND
    assert leader.ask(UpdateVoter(epoch, moved._replace(max_kraft_version=0))).error is ErrorCode.INVALID_REQUEST
    assert leader.ask(UpdateVoter(epoch, moved)).error is ErrorCode.NONE
    assert leader.node.endpoints_of(2) == moved.endpoints


def test_a_static_quorum_does_not_change() -> None:
    hand = Hand(voter_set=(), static_voters=static_voters(1, 2, 3))
    hand.lead()
    assert hand.ask(AddVoter(voter(4), 1_000)).error is ErrorCode.UNSUPPORTED_VERSION
    assert hand.ask(RemoveVoter(key(2))).error is ErrorCode.UNSUPPORTED_VERSION
    assert hand.ask(UpdateVoter(hand.node.epoch, voter(2))).error is ErrorCode.NONE
    assert hand.ask(UpdateVoter(hand.node.epoch, voter(5))).error is ErrorCode.VOTER_NOT_FOUND


def observer(**changes: object) -> Hand:
    """Node 4, in no voter set, follows node 2."""
    log = LogState(OffsetEpoch(0, 0), 3, ((1, 0),), ((2, voters(1, 2, 3)),), ((1, 1),))
    return Hand(4, log=log, election=ElectionState(5, 2, None), **changes)


def follow(hand: Hand, ms: int) -> list[object]:
    """What it asks of the leader but fetches, while every fetch is answered."""
    asked: list[object] = []
    end = hand.now + ms
    while hand.now < end:
        for sent in [one for one in hand.effects.send if hasattr(one, "peer")]:
            if isinstance(sent.request, Fetch):
                hand.answer(sent, FetchAnswer(ErrorCode.NONE, 5, 2))
            else:
                asked.append(sent.request)
                hand.answer(sent, Answer(ErrorCode.NONE, 5, 2))
        hand.now += 50
        if not hand.effects.send:
            hand.step(Tick())
    return asked


def test_a_controller_that_may_joins_by_itself() -> None:
    hand = observer(settings=SETTINGS._replace(auto_join=True))
    assert hand.node.role_name == "Observer"
    asked = follow(hand, SETTINGS.fetch_timeout_ms + 200)
    assert asked == [AddVoter(voter(4), SETTINGS.request_timeout_ms, ack_when_committed=False)]


def test_a_controller_with_a_new_disk_removes_its_old_self_first() -> None:
    log = LogState(OffsetEpoch(0, 0), 3, ((1, 0),), ((2, voters(1, 2, 4)),), ((1, 1),))
    hand = Hand(
        4,
        key=key(4, disk=1),
        log=log,
        election=ElectionState(5, 2, None),
        settings=SETTINGS._replace(auto_join=True),
    )
    assert hand.node.role_name == "Observer"
    assert follow(hand, SETTINGS.fetch_timeout_ms + 200) == [RemoveVoter(key(4), SETTINGS.request_timeout_ms)]


@pytest.mark.parametrize("changes", [{}, {"is_controller": False, "settings": SETTINGS._replace(auto_join=True)}])
def test_others_do_not_join(changes: dict[str, object]) -> None:
    assert follow(observer(**changes), 3 * SETTINGS.fetch_timeout_ms) == []


def test_a_voter_tells_the_leader_where_it_is() -> None:
    log = LogState(OffsetEpoch(0, 0), 3, ((1, 0),), ((2, voters(1, 2, 3)),), ((1, 1),))
    here = (Endpoint("CONTROLLER", "here", 1),)
    hand = Hand(1, log=log, election=ElectionState(5, 2, None), endpoints=here)
    assert follow(hand, SETTINGS.fetch_timeout_ms + 200) == [UpdateVoter(5, Voter(key(1), here))]
    same = Hand(1, log=log, election=ElectionState(5, 2, None), endpoints=endpoints(1))
    assert follow(same, 3 * SETTINGS.fetch_timeout_ms) == []
