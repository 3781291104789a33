"""The core's words on the wire and back: nothing that the core needs may get lost, at any version that can carry it."""

from __future__ import annotations

import pytest

from controller.control_records import build_control_batch, parse_batches
from controller.raft.types import (
    AddVoter,
    Answer,
    Batch,
    BeginQuorumEpoch,
    Endpoint,
    EndQuorumEpoch,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
    KRaftVersionChange,
    LeaderChange,
    OffsetEpoch,
    PeerAnswer,
    PeerRequest,
    RemoveVoter,
    ReplicaKey,
    UpdateVoter,
    Vote,
    Voter,
    VotersChange,
)
from controller.raft_answers import from_wire_answer, to_wire_answer
from controller.raft_requests import Refused, UnusableMessage, from_wire, to_wire
from protocol.errors import DecodeError, ErrorCode
from protocol.messages import response_class
from protocol.records import Record, build_batch
from protocol.schema import Message
from protocol.uuids import Uuid

CLUSTER = "5L6g3nShT-eMCtK--X86sw"
ME, PEER = ReplicaKey(1, Uuid(b"1" * 16)), ReplicaKey(2, Uuid(b"2" * 16))
ENDPOINTS = (Endpoint("CONTROLLER", "host-1", 9093), Endpoint("SECURE", "host-1", 9094))
VOTER = Voter(PEER, ENDPOINTS, 0, 1)

REQUESTS: list[PeerRequest] = [
    Vote(7, ME, PEER, OffsetEpoch(40, 6), True),
    Vote(7, ME, PEER, OffsetEpoch(0, 0), False),
    BeginQuorumEpoch(7, 1, PEER, ENDPOINTS),
    EndQuorumEpoch(7, ReplicaKey(1), (PEER, ReplicaKey(3, Uuid(b"3" * 16))), ENDPOINTS),
    Fetch(7, ME, 40, 6, 500, 39),
    Fetch(7, ME, 40, 6, 500),
    FetchSnapshot(7, ME, OffsetEpoch(30, 5), 4096),
    UpdateVoter(7, VOTER),
    AddVoter(VOTER, 30_000, False),
    RemoveVoter(PEER),
]


def over_the_wire(message: Message, version: int | None = None) -> Message:
    version = message.MAX_VERSION if version is None else version
    return type(message).decode(message.encode(version), version)


def sent(request: PeerRequest) -> Message:
    return to_wire(request, CLUSTER, fetch_max_bytes=1000, snapshot_max_bytes=2000)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: type(r).__name__)
def test_requests_arrive_as_they_were_sent(request_: PeerRequest) -> None:
    assert from_wire(over_the_wire(sent(request_)), CLUSTER) == request_


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: type(r).__name__)
def test_requests_of_another_cluster_are_refused(request_: PeerRequest) -> None:
    with pytest.raises(Refused) as refused:
        from_wire(over_the_wire(sent(request_)), "J4kqKQYcRMqzcxdRl5K5Ug")
    assert refused.value.response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID  # type: ignore[attr-defined]


@pytest.mark.parametrize("request_", REQUESTS[:7], ids=lambda r: type(r).__name__)
def test_requests_about_no_or_two_partitions_are_refused(request_: PeerRequest) -> None:
    for change in (lambda topics: topics.clear(), lambda topics: topics.append(topics[0])):
        message = sent(request_)
        change(message.topics)  # type: ignore[attr-defined]
        with pytest.raises(Refused) as refused:
            from_wire(over_the_wire(message), CLUSTER)
        assert refused.value.response.error_code == ErrorCode.INVALID_REQUEST  # type: ignore[attr-defined]


def test_older_versions_of_vote_do_without_directories() -> None:
    vote = Vote(7, ReplicaKey(1), ReplicaKey(2), OffsetEpoch(40, 6), False)
    received = from_wire(over_the_wire(sent(vote), 0), CLUSTER)
    assert received == vote._replace(voter=ReplicaKey(-1)), "version 0 does not say whom it asks"


def answered(
    request: PeerRequest, answer: PeerAnswer, listener: str = "CONTROLLER", records: bytes = b""
) -> PeerAnswer:
    message = to_wire_answer(request, answer, listener, records)
    version = message.MAX_VERSION
    data = b"".join(bytes(part) for part in message.encode_parts(version))  # type: ignore[arg-type]
    received = response_class(message.API_KEY).decode(data, version)
    return from_wire_answer(request, received, listener, parse_batches)


def test_plain_answers_come_back_with_the_leaders_address_at_that_listener() -> None:
    for request in REQUESTS[:4]:
        answer = Answer(ErrorCode.FENCED_LEADER_EPOCH, 9, 1, ENDPOINTS, granted=isinstance(request, Vote))
        assert answered(request, answer) == answer._replace(leader_endpoints=ENDPOINTS[:1])
        assert answered(request, answer, "SECURE") == answer._replace(leader_endpoints=ENDPOINTS[1:])
    assert answered(REQUESTS[7], Answer(ErrorCode.NONE, 9, 1, ENDPOINTS)) == Answer(ErrorCode.NONE, 9, 1, ENDPOINTS[:1])
    for request in REQUESTS[8:]:
        refused = Answer(ErrorCode.DUPLICATE_VOTER, message="it is one already")
        assert answered(request, refused) == refused


def test_answers_to_fetches_say_exactly_one_thing() -> None:
    fetch = REQUESTS[4]
    base = FetchAnswer(ErrorCode.NONE, 9, 1, high_watermark=38, log_start_offset=5, leader_endpoints=ENDPOINTS[:1])
    assert answered(fetch, base) == base
    diverging = base._replace(diverging=OffsetEpoch(20, 3))
    assert answered(fetch, diverging) == diverging
    snapshot = base._replace(snapshot_id=OffsetEpoch(30, 5))
    assert answered(fetch, snapshot) == snapshot
    refused = base._replace(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=-1, leader_endpoints=())
    assert answered(fetch, refused) == refused
    batch = bytes(build_batch([Record(0, 5, None, b"x"), Record(1, 5, None, b"y")], base_offset=40, leader_epoch=9))
    got = answered(fetch, base._replace(read_from=40), records=batch + batch[:30])
    assert isinstance(got, FetchAnswer)
    assert [(one.base_offset, one.end_offset, one.epoch, one.payload) for one in got.batches] == [(40, 42, 9, batch)]


def test_a_piece_of_a_snapshot_keeps_its_place() -> None:
    answer = FetchSnapshotAnswer(ErrorCode.NONE, 9, 1, OffsetEpoch(30, 5), 4096, 9000, b"", ENDPOINTS[:1])
    got = answered(REQUESTS[6], answer, records=b"piece")
    assert got == answer._replace(payload=b"piece")


def test_answers_about_anything_else_are_useless() -> None:
    message = to_wire_answer(REQUESTS[0], Answer(ErrorCode.NONE, 9, 1), "CONTROLLER")
    message.topics = []  # type: ignore[attr-defined]
    with pytest.raises(UnusableMessage):
        from_wire_answer(REQUESTS[0], message, "CONTROLLER", parse_batches)


def test_control_records_are_read_as_they_were_written() -> None:
    records = (LeaderChange(1, (1, 2, 3), (1, 3)), KRaftVersionChange(1), VotersChange((VOTER,)))
    data = bytes(build_control_batch(Batch(10, 13, 4, records), 77))
    (batch,) = parse_batches(data)
    assert batch._replace(payload=None) == Batch(10, 13, 4, records) and batch.payload == data
    spoilt = bytearray(data)
    spoilt[-1] ^= 1
    with pytest.raises(DecodeError, match="checksum"):
        parse_batches(bytes(spoilt))
