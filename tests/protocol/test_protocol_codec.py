"""Compiled codecs on their own: truncation, lies about lengths, unknown tags, misuse, headers."""

from __future__ import annotations

import contextlib
import random
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from message_values import all_messages, random_message

from protocol.errors import DecodeError, EncodeError
from protocol.header import (
    encode_request,
    encode_response_header,
    parse_request_header,
    peek_api,
    request_header_version,
    response_header_version,
)
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.metadata import decode_record, encode_record
from protocol.metadata.topic_record import TopicRecord
from protocol.schema import Message
from protocol.uuids import Uuid
from protocol.varint import decode_uvarint, encode_uvarint

MESSAGES = sorted(all_messages(), key=lambda declared: declared.__name__)


def versions_of(declared: type[Message]) -> list[int]:
    return sorted({declared.MIN_VERSION, declared.MAX_VERSION})


@pytest.mark.parametrize("declared", MESSAGES, ids=lambda declared: declared.__name__)
def test_every_truncation_is_a_decode_error(declared: type[Message]) -> None:
    rng = random.Random(declared.__name__)
    for version in versions_of(declared):
        data = random_message(declared, version, rng).encode(version)
        for end in range(len(data)):
            with pytest.raises(DecodeError):
                declared.decode(data[:end], version)


@pytest.mark.parametrize("declared", MESSAGES, ids=lambda declared: declared.__name__)
def test_damaged_bytes_decode_or_raise_decode_error(declared: type[Message]) -> None:
    """Whatever a peer sends ends in a message or in DecodeError: any other exception would be a traceback."""
    rng = random.Random(declared.__name__)
    for version in versions_of(declared):
        data = random_message(declared, version, rng).encode(version)
        for _ in range(60):
            damaged = bytearray(data or b"\0")
            for _ in range(rng.randint(1, 4)):
                damaged[rng.randrange(len(damaged))] = rng.choice((0, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            with contextlib.suppress(DecodeError):
                declared.decode(damaged, version)


def test_trailing_bytes_are_left_alone() -> None:
    message = MetadataRequest(topics=[MetadataRequestTopic(name="a")])
    data = message.encode(12)
    decoded, end = MetadataRequest.decode_from(data + b"tail", 12)
    assert (decoded, end) == (message, len(data))


def test_a_count_beyond_the_message_is_refused_before_anything_is_allocated() -> None:
    with pytest.raises(DecodeError, match="topics claims 2147483647"):
        MetadataRequest.decode(struct.pack(">i", 0x7FFFFFFF), 4)


def test_a_negative_length_is_refused() -> None:
    with pytest.raises(DecodeError, match="null or has a negative length"):
        CreateTopicsRequest.decode(struct.pack(">i", -5) + bytes(8), 4)


def test_a_varint_that_never_ends_is_refused() -> None:
    with pytest.raises(DecodeError, match="does not end"):
        MetadataRequest.decode(b"\xff" * 20, 12)


def test_unknown_tagged_fields_survive() -> None:
    body = ApiVersionsRequest(client_software_name="x", client_software_version="1").encode(4)
    tagged = body[:-1] + b"\x01" + encode_uvarint(900) + b"\x03abc"
    message = ApiVersionsRequest.decode(tagged, 4)
    assert message.client_software_name == "x"
    assert message.encode(4) == tagged


def test_repeated_tags_are_refused() -> None:
    body = ApiVersionsRequest(client_software_name="x", client_software_version="1").encode(4)
    with pytest.raises(DecodeError, match="out of order"):
        ApiVersionsRequest.decode(body[:-1] + b"\x02" + b"\x07\x00\x07\x00", 4)


def test_records_are_a_view_of_the_buffer_not_a_copy() -> None:
    part = PartitionProduceData(index=0, records=b"r" * 50)
    request = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=[part])])
    buffer = bytearray(request.encode(9))
    decoded = ProduceRequest.decode(buffer, 9)
    view = decoded.topic_data[0].partition_data[0].records
    assert isinstance(view, memoryview) and not view.readonly
    view[:1] = b"X"
    assert buffer.count(b"X") == 1


def test_a_sendable_part_is_passed_through() -> None:
    class Slice:
        def __len__(self) -> int:
            return 5

    part = Slice()
    response = FetchResponse(
        responses=[FetchableTopicResponse(topic="t", partitions=[PartitionData(records=part), PartitionData()])]
    )
    pieces = response.encode_parts(12)
    assert [piece is part for piece in pieces] == [False, True, False]
    as_bytes = b"".join(b"12345" if piece is part else piece for piece in pieces)
    decoded = FetchResponse.decode(as_bytes, 12)
    assert bytes(decoded.responses[0].partitions[0].records) == b"12345"
    with pytest.raises(EncodeError):
        response.encode(12)


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (FetchRequest(cluster_id="c", min_bytes="one"), 12),  # type: ignore[arg-type]
        (MetadataRequest(topics=[MetadataRequestTopic(name="x" * 40000)]), 12),
        (MetadataRequest(), 99),
    ],
)
def test_our_own_misuse_is_an_encode_error(message: Message, version: int) -> None:
    with pytest.raises(EncodeError):
        message.encode(version)


def test_a_request_refuses_a_field_that_its_version_cannot_carry() -> None:
    request = CreateTopicsRequest(validate_only=True)
    assert CreateTopicsRequest.decode(request.encode(2), 2).validate_only
    with pytest.raises(EncodeError, match=r"FetchRequest\.replica_id cannot be sent"):
        FetchRequest(replica_id=3).encode(15)


def test_metadata_record_frame() -> None:
    record = TopicRecord(name="t", topic_id=Uuid.random())
    data = encode_record(record, 0)
    assert decode_record(data) == (record, 0)
    with pytest.raises(DecodeError, match="1 bytes too many"):
        decode_record(data + b"x")
    with pytest.raises(DecodeError, match="type 99 is unknown"):
        decode_record(b"\x01\x63\x00")
    with pytest.raises(DecodeError, match="frame version 2"):
        decode_record(b"\x02\x02\x00")
    with pytest.raises(DecodeError, match="within its frame"):
        decode_record(b"\x01")


@given(st.integers(0, 2**32 - 1), st.binary(max_size=8))
def test_uvarint_round_trip(value: int, tail: bytes) -> None:
    data = encode_uvarint(value)
    assert decode_uvarint(data + tail, 0) == (value, len(data))


@given(st.binary(max_size=60))
@settings(max_examples=300)
def test_headers_parse_or_raise_decode_error(data: bytes) -> None:
    with contextlib.suppress(DecodeError):
        parse_request_header(memoryview(data))


@pytest.mark.parametrize("client_id", [None, "", "kafka-python", "ü" * 20])
@pytest.mark.parametrize(("key", "version"), [(0, 3), (0, 9), (18, 0), (18, 4), (3, 13), (1, 18)])
def test_request_header_round_trip(key: int, version: int, client_id: Any) -> None:
    frame = memoryview(encode_request(key, version, 77, client_id, b"body"))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    parsed = parse_request_header(frame[4:])
    assert parsed[:4] == (key, version, 77, client_id)
    assert bytes(frame[4:][parsed[4] :]) == b"body"
    assert peek_api(frame[4:]) == (key, version, 77)


def test_api_versions_response_keeps_the_old_header() -> None:
    assert request_header_version(18, 4) == 2
    assert response_header_version(18, 4) == 0
    assert encode_response_header(18, 4, 5) == b"\0\0\0\x05"
    assert encode_response_header(3, 12, 5) == b"\0\0\0\x05\0"


def test_uuid_text() -> None:
    made = Uuid.random()
    assert Uuid.parse(str(made)) == made
    assert str(Uuid.ZERO) == "AAAAAAAAAAAAAAAAAAAAAA"
    with pytest.raises(ValueError, match="16 bytes"):
        Uuid(b"short")
    for wrong in ("", "short", "A" * 23, "AAAAAAAAAAAAAAAAAAAA+/"):
        with pytest.raises(ValueError, match="not a base64 UUID"):
            Uuid.parse(wrong)
