"""Several batches of a producer under way at once: what a broker says when they come again, and when one is missing.

The fault test does this to three brokers while they break; here it is done to one, step by step.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.broker_process import BrokerProcess
from support.fault_clients import Producer
from support.fault_pipeline import WINDOW, Window
from support.history import History
from support.processes import wait_until
from support.wire import Wire, ask

from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.produce import ProduceRequest

TOPIC = "windows"
Answer = tuple[ErrorCode, int]  # and the offset


class FiveAtOnce:
    """A producer id, and batches of one record under its numbers."""

    def __init__(self, broker: BrokerProcess, path: Path) -> None:
        self.broker = broker
        self._history = History(path)
        self._producer = Producer("p", (0,), {1: ("127.0.0.1", broker.port)}, TOPIC, self._history)
        assert self._producer.init()

    def close(self) -> None:
        self._history.close()

    def send(self, sequences: Sequence[int], *, epoch: int = 0) -> list[Answer]:
        """All on one connection before the first answer is read, once the broker leads the partition."""
        found: list[Answer] = []

        def is_answered() -> bool:
            found[:] = self._ask(sequences, epoch)
            return all(code is not ErrorCode.NOT_LEADER_OR_FOLLOWER for code, _ in found)

        wait_until(is_answered, 20, "the broker leads the partition")
        return found

    def _ask(self, sequences: Sequence[int], epoch: int) -> Iterator[Answer]:
        with Wire(self.broker.port) as wire:
            for sequence in sequences:
                numbers = (self._producer.producer_id, self._producer.producer_epoch + epoch, sequence)
                wire.send_request(self._producer.request(0, numbers, [str(sequence)]), 9)
            for at in range(len(sequences)):
                (result,) = wire.read_response(ProduceRequest.API_KEY, 9).responses[0].partition_responses
                assert wire.answered == at + 1
                yield ErrorCode(result.error_code), result.base_offset


@pytest.fixture
def five(fresh_broker: BrokerProcess, tmp_path: Path) -> Iterator[FiveAtOnce]:
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    made = ask(fresh_broker.port, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    assert made.topics[0].error_code == 0
    producer = FiveAtOnce(fresh_broker, tmp_path / "history.jsonl")
    yield producer
    producer.close()


def stored(*offsets: int) -> list[Answer]:
    return [(ErrorCode.NONE, offset) for offset in offsets]


def test_five_that_come_again_are_where_they_were(five: FiveAtOnce) -> None:
    assert five.send(range(5)) == stored(0, 1, 2, 3, 4)
    assert five.send(range(5)) == stored(0, 1, 2, 3, 4)
    five.broker.kill()
    five.broker.start()
    assert five.send(range(5)) == stored(0, 1, 2, 3, 4)
    assert five.send(range(1, 6)) == stored(1, 2, 3, 4, 5)


def test_none_is_stored_behind_one_that_is_missing(five: FiveAtOnce) -> None:
    assert five.send([0]) == stored(0)
    assert five.send([2, 3, 4]) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)] * 3
    # As a producer does that is told of the failure of 1 with 2 and 3 under way: in order, behind them.
    assert five.send([2, 3, 1, 2, 3]) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)] * 2 + stored(1, 2, 3)


def test_a_new_epoch_begins_with_zero(five: FiveAtOnce) -> None:
    assert five.send([0, 1]) == stored(0, 1)
    assert five.send([1, 0, 1], epoch=1) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1), *stored(2, 3)]
    assert five.send([2]) == [(ErrorCode.INVALID_PRODUCER_EPOCH, -1)]


def window_of(count: int) -> Window:
    window = Window(0, 7, 0)
    window.size = WINDOW
    for _ in range(count):
        window.add(["x", "y"])
    return window


def test_a_window_counts_from_the_first_that_is_not_acknowledged() -> None:
    window = window_of(WINDOW)
    for batch in itertools.islice(window.batches, 1, None):
        window.settle(batch)
    assert len(window.batches) == WINDOW
    window.settle(window.batches[0])
    assert len(window.batches) == 0


def test_a_new_epoch_numbers_what_is_left_anew() -> None:
    window = window_of(4)
    window.settle(window.batches[0])
    window.settle(window.batches[1])  # the third of all
    window.begin_epoch(7, 1)
    assert [(batch.first, batch.sequence) for batch in window.batches] == [(2, 0), (6, 2)]
    assert (window.epoch, window.next_first, window.next_sequence) == (1, 8, 4)
    window.rest()
    assert window.retries_at > time.monotonic() - 1
