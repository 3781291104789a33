"""The follower's steps, its fetch session, and those who wait for commits."""

from __future__ import annotations

import random

import pytest

from broker.replication.commits import CommitQueue
from broker.replication.fetch_session import FetchSessionClient
from broker.replication.follower import (
    Append,
    AskOffsets,
    Delay,
    FollowerPhase,
    FollowerState,
    GiveUp,
    LogPosition,
    Truncate,
    TruncateFully,
)
from protocol.errors import ErrorCode

BACKOFF_MS = 50


def log(end: int, epochs: dict[int, int] | None = None, *, high_watermark: int = 0, start: int = 0) -> LogPosition:
    """`epochs`: epoch -> where it ended, for the look-up of the largest at or below."""
    known = epochs or {}

    def end_offset_for(epoch: int) -> tuple[int, int]:
        below = [one for one in known if one <= epoch]
        if not known or epoch > max(known):
            return -1, -1
        return (max(below), known[max(below)]) if below else (epoch, start)

    return LogPosition(start, high_watermark, end, max(known, default=-1), end_offset_for)


def following() -> FollowerState:
    state = FollowerState(1, 9, BACKOFF_MS)
    assert state.start(log(0)) is None
    return state


def test_a_log_with_epochs_is_compared_by_the_first_fetch() -> None:
    state = FollowerState(1, 9, BACKOFF_MS)
    position = log(10, {3: 10}, high_watermark=4)
    assert state.start(position) is None
    assert state.position(position) == (10, 3, 0, 9)
    assert state.wants_fetch(0)


def test_without_epochs_only_what_is_committed_can_be_trusted() -> None:
    state = FollowerState(1, 9, BACKOFF_MS)
    assert state.start(log(10, high_watermark=4)) == Truncate(4)
    assert FollowerState(1, 9, BACKOFF_MS).start(log(4, high_watermark=4)) is None


def test_data_for_where_the_log_ends() -> None:
    state = following()
    assert state.on_data(10, log(10), 7, 2) == Append(7, 2)
    assert state.on_data(12, log(10), 7, 2) is None  # the log was cut since


@pytest.mark.parametrize(
    ("own", "epoch", "end", "wanted"),
    [
        ({3: 10, 5: 20}, 3, 8, 8),  # the leader's epoch 3 ended earlier
        ({3: 10, 5: 20}, 3, 12, 10),  # ours did
        ({2: 6, 5: 20}, 3, 12, 6),  # we do not know epoch 3: to the end of what we know below, and ask again
        ({5: 20}, 3, 12, 0),  # nor any below
        ({}, 3, 12, 12),
    ],
)
def test_truncation_by_epochs(own: dict[int, int], epoch: int, end: int, wanted: int) -> None:
    assert following().on_diverging(20, log(20, own), epoch, end) == Truncate(wanted)


def test_truncation_when_the_leader_does_not_know() -> None:
    assert following().on_diverging(20, log(20, {3: 20}, high_watermark=7), 3, -1) == Truncate(7)
    assert following().on_diverging(20, log(20, {3: 20}), -1, 9) == Truncate(9)
    assert following().on_diverging(21, log(20, {3: 20}), 3, 9) is None


def test_outside_the_leaders_log() -> None:
    for leader_offsets, wanted in (
        ((0, 5), Truncate(5)),
        ((15, 30), TruncateFully(15)),
        ((5, 30), None),
    ):
        state = following()
        assert state.on_error(0, ErrorCode.OFFSET_OUT_OF_RANGE) == AskOffsets()
        assert not state.wants_fetch(0)
        assert state.wants_offsets(0)
        assert state.on_leader_offsets(log(10), *leader_offsets) == wanted
        assert state.wants_fetch(0)


def test_errors_that_pass() -> None:
    """The first wait is short, the following ones double up to replica.fetch.backoff.ms, until an answer is good."""
    state = following()
    for until in (120, 140, 150, 150):
        assert state.on_error(100, ErrorCode.NOT_LEADER_OR_FOLLOWER) == Delay(until, "")
        assert not state.wants_fetch(until - 1)
        assert state.wants_fetch(until)
    assert state.on_data(10, log(10), 10, 0) == Append(10, 0)
    assert state.on_error(100, ErrorCode.NOT_LEADER_OR_FOLLOWER) == Delay(120, "")
    step = state.on_error(100, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert isinstance(step, Delay)
    assert "UNKNOWN_SERVER_ERROR" in step.reason


def test_a_fenced_follower_waits_for_metadata() -> None:
    state = following()
    assert isinstance(state.on_error(0, ErrorCode.FENCED_LEADER_EPOCH), GiveUp)
    assert state.phase is FollowerPhase.FAILED
    assert not state.wants_fetch(1 << 40)
    assert state.on_error(0, ErrorCode.OFFSET_OUT_OF_RANGE) is None


# Sessions


def test_a_session_names_what_changed() -> None:
    session: FetchSessionClient[str, int] = FetchSessionClient()
    first = session.request({"a": 1, "b": 2})
    assert (first.session_id, first.epoch, first.changed) == (0, 0, {"a": 1, "b": 2})
    assert first.is_full
    session.on_response(77, has_error=False)
    second = session.request({"a": 1, "b": 3, "c": 4})
    assert second == (77, 1, {"b": 3, "c": 4}, [])
    session.on_response(77, has_error=False)
    assert session.request({"b": 3}) == (77, 2, {}, ["a", "c"])


def test_a_lost_session_begins_anew() -> None:
    session: FetchSessionClient[str, int] = FetchSessionClient()
    session.request({"a": 1})
    session.on_response(77, has_error=False)
    session.request({"a": 2})
    session.on_response(0, has_error=True)
    assert session.request({"a": 2}) == (77, 0, {"a": 2}, [])  # the old one is named, so that the leader drops it
    session.on_response(0, has_error=False)
    assert session.request({"a": 3}) == (0, 0, {"a": 3}, [])  # the leader has no room for a session
    session.reset()
    assert session.request({"a": 3}).is_full


# Commits


def test_commits_are_told_in_order_and_once() -> None:
    queue = CommitQueue()
    told: list[tuple[int, ErrorCode]] = []
    offsets = list(range(1, 40))
    random.Random(3).shuffle(offsets)
    for offset in offsets:
        queue.add(offset, lambda outcome, offset=offset: told.append((offset, outcome)))
    queue.release(20, ErrorCode.NONE)
    assert told == [(offset, ErrorCode.NONE) for offset in range(1, 21)]
    queue.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert told[20:] == [(offset, ErrorCode.NOT_LEADER_OR_FOLLOWER) for offset in range(21, 40)]
    assert not len(queue)
    queue.release(100, ErrorCode.NONE)
    assert len(told) == 39
