"""What the tools and the kernel print, and the frames of the raw client."""

from __future__ import annotations

import random

import pytest

from bench.cases.produce import json_line
from bench.machine import CLOCK_TICKS, parse_cpu_model, parse_cpu_seconds, parse_resident_mb
from bench.raw import FETCH_VERSION, PRODUCE_VERSION, fetch_template, make_batch, produce_frame
from bench.tool_output import Consumed, Produced, parse_consumed, parse_produced
from protocol.header import parse_request_header
from protocol.messages.fetch import FetchRequest
from protocol.messages.produce import ProduceRequest
from protocol.records import check_crc, read_header
from protocol.uuids import Uuid

PRODUCED = """\
100000 records sent, 19986.0 records/sec (19.06 MB/sec), 1212.1 ms avg latency, 1520.0 ms max latency.
300000 records sent, 43516.100957 records/sec (41.50 MB/sec), 500.00 ms avg latency, 900.00 ms max latency, \
510 ms 50th, 700 ms 95th, 784 ms 99th, 890 ms 99.9th.
"""
CONSUMED = (
    "2026-01-01 10:00:00:000, 2026-01-01 10:00:01:516, "
    "95.3674, 62.9072, 100000, 65963.0607, 666, 850, 112.1970, 117647.0588\n"
)


def test_the_closing_line_of_the_producer_counts() -> None:
    assert parse_produced(PRODUCED) == Produced(300000, 43516.100957, 41.5, 784)


def test_a_producer_that_said_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="ProducerPerformance"):
        parse_produced("java.lang.OutOfMemoryError")


def test_the_line_of_the_consumer() -> None:
    assert parse_consumed("WARNING: slow\n" + CONSUMED) == Consumed(95.3674, 100000, 666, 850, 112.197, 117647.0588)


def test_a_consumer_that_said_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="ConsumerPerformance"):
        parse_consumed("a, b\n")


def test_cpu_time_with_an_awkward_process_name() -> None:
    stat = "42 (java) (x) S 1 1 1 0 -1 4194560 9 0 0 0 250 50 0 0 20 0 30 0 100 0 0"
    assert parse_cpu_seconds(stat) == 300 / CLOCK_TICKS


def test_resident_memory() -> None:
    assert parse_resident_mb("Name:\tjava\nVmHWM:\t  4096 kB\nVmRSS:\t  2048 kB\n") == 2.0
    with pytest.raises(ValueError, match="VmRSS"):
        parse_resident_mb("Name:\tzombie\n")


def test_the_model_of_the_processor() -> None:
    assert (
        parse_cpu_model("processor\t: 0\nmodel name\t: Fast One\nprocessor\t: 1\nmodel name\t: Fast One\n")
        == "Fast One"
    )


@pytest.mark.parametrize("size", [100, 200, 1200, 16384, 65536, 1048576])
def test_batches_fill_their_size_and_are_sound(size: int) -> None:
    batch = make_batch(size)
    assert size * 0.5 < len(batch.data) <= size
    header = read_header(batch.data)
    assert header.records_count == batch.records
    assert header.size == len(batch.data)
    assert check_crc(batch.data)


def test_a_produce_frame_is_a_request() -> None:
    batch = make_batch(16384)
    frame = memoryview(produce_frame("topic", batch.data, "raw-1"))
    key, version, _, client_id, body = parse_request_header(frame[4:])
    assert (key, version, client_id) == (0, PRODUCE_VERSION, "raw-1")
    request = ProduceRequest.decode(frame[4:], version, body)
    assert request.topic_data[0].name == "topic"
    assert bytes(request.topic_data[0].partition_data[0].records) == batch.data


def test_a_fetch_frame_can_be_given_any_offset() -> None:
    topic_id = Uuid.random()
    frame, position = fetch_template(topic_id, 4096)
    frame[position : position + 8] = (1234567).to_bytes(8, "big")
    _, version, _, _, body = parse_request_header(memoryview(frame)[4:])
    request = FetchRequest.decode(memoryview(frame)[4:], version, body)
    assert version == FETCH_VERSION
    assert request.topics[0].topic_id == topic_id
    assert request.topics[0].partitions[0].fetch_offset == 1234567


def test_payloads_have_their_size_and_are_the_same_every_time() -> None:
    lines = [json_line(random.Random(5), 1000) for _ in range(2)]
    assert lines[0] == lines[1] and len(lines[0]) == 1000
