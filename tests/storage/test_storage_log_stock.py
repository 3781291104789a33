"""Apache Kafka's own code on our files: its dump tool complains of nothing, its segments write the same bytes."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
from support.logs import NOW, append, batch, log_config, open_log, timed_batch
from support.tools import DUMP_LOG, StockTools

from protocol.compression import Compression
from protocol.records import ControlType, control_batch
from storage.log import Log
from storage.results import AppendOrigin

pytestmark = pytest.mark.stock

COMPLAINT = re.compile("mismatch|sanity check failed|non-?consecutive|invalid|corrupt|isvalid: false", re.IGNORECASE)
# The tool takes every segment but the first for a gap after offset -1, in Kafka's own logs too.
FIRST_OFFSET = re.compile(r"(?:Non-consecutive offsets in .*\n  -1 is followed by \d+\n)+")


def busy_log(directory: Path) -> Log:
    """Every codec, idempotent and transactional producers, aborts, several segments, several epochs."""
    dice = random.Random(3)
    log = open_log(directory, log_config(segment_bytes=20_000, index_interval_bytes=500))
    sequence = 0
    for number in range(200):
        values = [dice.randbytes(dice.randrange(300)) for _ in range(dice.randrange(1, 6))]
        options: dict[str, Any] = {"compression": Compression(number % 5), "timestamp": NOW + dice.randrange(10_000)}
        if number % 3 == 0:
            options |= {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
            sequence += len(values)
        append(log, batch(*values, **options), leader_epoch=number // 50)
        if number % 10 == 0:
            producer = {"producer_id": 1000 + number, "producer_epoch": 0}
            append(log, batch(b"t", base_sequence=0, is_transactional=True, **producer), leader_epoch=number // 50)
            kind = ControlType.ABORT if number % 20 else ControlType.COMMIT
            marker = control_batch(kind, 0, b"\0\0\0\0\0\1", NOW + number, **producer)
            origin = AppendOrigin.COORDINATOR
            append(log, memoryview(marker), leader_epoch=number // 50, origin=origin, transaction_version=1)
    assert len(log.segments) > 4
    return log


def assert_dumps_cleanly(stock_tools: StockTools, directory: Path) -> None:
    paths = sorted(path for path in directory.iterdir() if path.suffix in (".log", ".index", ".timeindex"))
    names = ",".join(map(str, paths))
    options = ("--deep-iteration",), ("--index-sanity-check",), ("--verify-index-only",)
    for flags in options:
        result = stock_tools.run(DUMP_LOG, *flags, "--files", names)
        assert result.code == 0, result.err
        assert FIRST_OFFSET.sub("", result.err) == ""
        for line in result.lines:
            assert not COMPLAINT.search(line), line
    others = sorted(path for path in directory.iterdir() if path.suffix in (".snapshot", ".txnindex"))
    result = stock_tools.run(DUMP_LOG, "--files", ",".join(map(str, others)))
    assert (result.code, result.err) == (0, "")


def test_kafkas_dump_tool_reads_our_files(tmp_path: Path, stock_tools: StockTools) -> None:
    log = busy_log(tmp_path)
    log.close()
    directory = Path(log.directory)
    assert list(directory.glob("*.txnindex")) and list(directory.glob("*.snapshot"))
    assert_dumps_cleanly(stock_tools, directory)


def test_kafkas_dump_tool_reads_what_recovery_rebuilt(tmp_path: Path, stock_tools: StockTools) -> None:
    log = busy_log(tmp_path)
    for path in Path(log.directory).iterdir():
        if path.suffix != ".log":
            path.unlink()
    active = Path(log.segments.active.file.path)
    active.write_bytes(active.read_bytes()[:-5])
    log = open_log(tmp_path, log.config)
    log.close()
    assert_dumps_cleanly(stock_tools, Path(log.directory))


def test_kafkas_segments_write_the_same_bytes(tmp_path: Path, jvm: Any) -> None:
    """The same appends to a LogSegment of Kafka's: the log and both indexes are equal, byte for byte."""
    dice = random.Random(5)
    log = open_log(tmp_path, log_config(index_interval_bytes=700, segment_ms=1 << 40))
    java = jvm.jvm
    theirs = tmp_path / "theirs-0"
    theirs.mkdir()
    properties = java.java.util.Properties()
    properties.put("index.interval.bytes", "700")
    config = java.org.apache.kafka.storage.internals.log.LogConfig(properties)
    time = java.org.apache.kafka.common.utils.Time.SYSTEM
    segments = java.org.apache.kafka.storage.internals.log.LogSegment
    segment = segments.open(java.java.io.File(str(theirs)), 0, config, time, 0, False)
    for _ in range(150):
        stamps = [NOW + dice.randrange(100_000) for _ in range(dice.randrange(1, 8))]
        data = timed_batch(*stamps, compression=Compression(dice.randrange(2)))
        result = append(log, data, leader_epoch=2)
        buffer = java.java.nio.ByteBuffer.wrap(bytes(data))
        records = java.org.apache.kafka.common.record.internal.MemoryRecords.readableRecords(buffer)
        segment.append(result.last_offset, records)
    segment.onBecomeInactiveSegment()
    segment.close()
    log.roll()
    ours = Path(log.directory)
    for name in ("00000000000000000000.log", "00000000000000000000.index", "00000000000000000000.timeindex"):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name
    assert (ours / "00000000000000000000.index").stat().st_size > 80
