"""Random lives of a few producers, lived by our manager and by Kafka's at once: same verdicts, same files."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway, get_field
from py4j.protocol import Py4JJavaError

from protocol.errors import ApiError, ErrorCode
from protocol.records import BatchHeader
from storage.producer_append import MAX_SEQUENCE, EndTxnMarker
from storage.producer_state import CompletedTxn, ProducerStateManager
from storage.results import AppendOrigin

pytestmark = pytest.mark.stock

NOW = 1_700_000_000_000
EXPIRATION_MS = 86_400_000
ERRORS = {
    "OutOfOrderSequenceException": ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    "InvalidProducerEpochException": ErrorCode.INVALID_PRODUCER_EPOCH,
    "TransactionCoordinatorFencedException": ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    "InvalidTxnStateException": ErrorCode.INVALID_TXN_STATE,
}


class Twins:
    """Both managers; every step is taken by both, and they must agree on its outcome."""

    def __init__(self, jvm: JavaGateway, directory: Path) -> None:
        self.jvm = jvm
        self.log = jvm.jvm.org.apache.kafka.storage.internals.log
        self.records = jvm.jvm.org.apache.kafka.common.record.internal
        self.directories = directory / "ours", directory / "theirs"
        for made in self.directories:
            made.mkdir()
        self.end = 0
        self.outcomes: Counter[str] = Counter()
        self.open()

    def open(self) -> None:
        ours, theirs = self.directories
        self.ours = ProducerStateManager("t", 0, str(ours), producer_id_expiration_ms=EXPIRATION_MS)
        self.theirs = self.log.ProducerStateManager(
            self.jvm.jvm.org.apache.kafka.common.TopicPartition("t", 0),
            self.jvm.jvm.java.io.File(str(theirs)),
            900_000,
            self.log.ProducerStateManagerConfig(EXPIRATION_MS, True),
            self.jvm.jvm.org.apache.kafka.common.utils.Time.SYSTEM,
        )

    def append(
        self, producer: int, epoch: int, sequence: int, count: int, txn: bool, origin: AppendOrigin, at: int
    ) -> None:
        last = self.end + count - 1
        attributes = 0x10 if txn else 0
        header = BatchHeader(self.end, 100, 0, 2, 0, attributes, count - 1, at, at, producer, epoch, sequence, count)
        our_info = self.ours.prepare_update(producer, origin)
        their_info = self.theirs.prepareUpdate(producer, getattr(self.log.AppendOrigin, origin.name))
        offset = self.log.LogOffsetMetadata(self.end)
        if self._agree(
            lambda: our_info.append(header),
            lambda: their_info.appendDataBatch(epoch, sequence, header.last_sequence, at, offset, last, txn),
        ):
            self._applied(our_info, their_info, count)

    def marker(
        self, producer: int, epoch: int, abort: bool, coordinator: int, version: int, origin: AppendOrigin, at: int
    ) -> None:
        kind = self.records.ControlRecordType.ABORT if abort else self.records.ControlRecordType.COMMIT
        our_info = self.ours.prepare_update(producer, origin)
        their_info = self.theirs.prepareUpdate(producer, getattr(self.log.AppendOrigin, origin.name))
        results: list[Any] = []

        def ours() -> None:
            found = our_info.append_end_txn_marker(EndTxnMarker(abort, coordinator), epoch, self.end, at, version)
            results.append(found)

        def theirs() -> None:
            marker = self.records.EndTransactionMarker(kind, coordinator)
            results.append(their_info.appendEndTxnMarker(marker, epoch, self.end, at, version))

        if not self._agree(ours, theirs):
            return
        completed: CompletedTxn | None = results[0]
        assert results[1].isPresent() == (completed is not None)
        self.ours.update(our_info)
        self.theirs.update(their_info)
        if completed is not None:
            self.outcomes["completed"] += 1
            other = results[1].get()
            assert completed == (
                other.producerId(),
                other.firstOffset(),
                other.lastOffset(),
                other.isAborted(),
            )
            assert self.ours.last_stable_offset(completed) == self.theirs.lastStableOffset(other)
            self.ours.complete_txn(completed)
            self.theirs.completeTxn(other)
        self._moved(1)

    def _agree(self, ours: Any, theirs: Any) -> bool:
        """Whether the step was accepted; both must say the same, with the same error if not."""
        verdict = expected = "accepted"
        try:
            ours()
        except ApiError as error:
            verdict = error.code.name
        try:
            theirs()
        except Py4JJavaError as error:
            expected = ERRORS[error.java_exception.getClass().getSimpleName()].name
        assert verdict == expected
        self.outcomes[verdict] += 1
        return verdict == "accepted"

    def _applied(self, our_info: Any, their_info: Any, count: int) -> None:
        self.ours.update(our_info)
        self.theirs.update(their_info)
        self._moved(count)

    def _moved(self, count: int) -> None:
        self.end += count
        self.ours.update_map_end_offset(self.end)
        self.theirs.updateMapEndOffset(self.end)

    def check(self) -> None:
        """Everything that can be asked, and the files byte for byte."""
        unstable = self.theirs.firstUnstableOffset()
        assert self.ours.first_unstable_offset == (
            get_field(unstable.get(), "messageOffset") if unstable.isPresent() else None
        )
        undecided = self.theirs.firstUndecidedOffset()
        assert self.ours.first_undecided_offset == (undecided.getAsLong() if undecided.isPresent() else None)
        assert self.ours.map_end_offset == self.theirs.mapEndOffset()
        assert self.ours.is_empty == self.theirs.isEmpty()
        assert self.ours.has_late_transaction(NOW * 2) == self.theirs.hasLateTransaction(NOW * 2)
        assert len(self.ours.producers) == self.theirs.producerIdCount()
        ours, theirs = ({p.name: p.read_bytes() for p in d.iterdir()} for d in self.directories)
        assert ours == theirs


@pytest.mark.parametrize("seed", range(5))
def test_same_verdicts_and_snapshots(jvm: JavaGateway, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    twins = Twins(jvm, tmp_path)
    origins = [AppendOrigin.CLIENT] * 6 + [AppendOrigin.REPLICATION, AppendOrigin.COORDINATOR]
    for step in range(150):
        producer = chance.randrange(1, 6)
        known = twins.ours.last_entry(producer)
        epoch = (known.epoch if known and known.epoch >= 0 else 0) + chance.choice([0] * 10 + [1, 1, -1])
        epoch = max(epoch, 0)
        at = NOW + step
        kind = chance.choices(["append", "marker", "watermark", "snapshot", "reload", "expire"], [60, 20, 8, 6, 3, 1])[
            0
        ]
        if kind == "append":
            following = (known.last_sequence + 1) & MAX_SEQUENCE if known and known.batches else 0
            sequence = chance.choice([following] * 8 + [0, (following + 1) & MAX_SEQUENCE, MAX_SEQUENCE])
            txn = chance.random() < 0.7 if known is None or known.current_txn_first_offset is None else True
            if chance.random() < 0.03:
                txn = not txn
            twins.append(producer, epoch, sequence, chance.randrange(1, 4), txn, chance.choice(origins), at)
        elif kind == "marker":
            version = chance.randrange(3)
            bumped = min(epoch + (1 if version == 2 and chance.random() < 0.7 else 0), 32767)
            coordinator = (known.coordinator_epoch if known else 0) + chance.choice([0, 0, 0, 1, -1])
            origin = chance.choice([AppendOrigin.COORDINATOR] * 4 + [AppendOrigin.REPLICATION])
            twins.marker(producer, bumped, chance.random() < 0.5, max(coordinator, -1), version, origin, at)
        elif kind == "watermark":
            watermark = chance.randrange(twins.end + 1)
            twins.ours.on_high_watermark_updated(watermark)
            twins.theirs.onHighWatermarkUpdated(watermark)
        elif kind == "snapshot":
            twins.ours.take_snapshot()
            twins.theirs.takeSnapshot()
        elif kind == "reload":
            start = chance.randrange(twins.end // 3 + 1)
            end = chance.randrange(start, twins.end + 1)
            if chance.random() < 0.5:
                twins.open()
            twins.ours.truncate_and_reload(start, end, NOW)
            twins.theirs.truncateAndReload(start, end, NOW)
            twins.end = twins.ours.map_end_offset
        else:
            later = NOW + EXPIRATION_MS + chance.randrange(step + 1)
            twins.ours.expire(later)
            twins.theirs.removeExpiredProducers(later)
        twins.check()
    assert twins.outcomes["accepted"] > 40, twins.outcomes
    assert twins.outcomes["OUT_OF_ORDER_SEQUENCE_NUMBER"] > 0, twins.outcomes
    assert twins.outcomes["completed"] > 3, twins.outcomes


def test_kafka_goes_on_from_our_snapshot_and_we_from_kafkas(jvm: JavaGateway, tmp_path: Path) -> None:
    twins = Twins(jvm, tmp_path)
    twins.append(1, 0, 0, 3, False, AppendOrigin.CLIENT, NOW)
    twins.append(2, 4, 0, 2, True, AppendOrigin.CLIENT, NOW)
    twins.marker(3, 1, True, 6, 0, AppendOrigin.COORDINATOR, NOW)
    twins.ours.take_snapshot()
    twins.theirs.takeSnapshot()
    twins.directories = twins.directories[1], twins.directories[0]
    twins.open()
    twins.ours.truncate_and_reload(0, twins.end, NOW)
    twins.theirs.truncateAndReload(0, twins.end, NOW)
    twins.check()
    assert twins.ours.first_unstable_offset == 3
    twins.append(1, 0, 3, 1, False, AppendOrigin.CLIENT, NOW)
    twins.append(1, 0, 9, 1, False, AppendOrigin.CLIENT, NOW)
    twins.append(2, 4, 2, 1, True, AppendOrigin.CLIENT, NOW)
    twins.marker(2, 4, False, 0, 0, AppendOrigin.COORDINATOR, NOW)
    twins.marker(3, 1, False, 5, 0, AppendOrigin.COORDINATOR, NOW)
    twins.check()
    assert twins.outcomes["OUT_OF_ORDER_SEQUENCE_NUMBER"] == 1
    assert twins.outcomes["TRANSACTION_COORDINATOR_FENCED"] == 1
