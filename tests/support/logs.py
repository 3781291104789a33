"""Small builders for tests of logs: configurations, batches, what a log holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from config.topic import LogConfig
from protocol.records import Record, build_batch, iter_batches, iter_records
from storage.disk import DISK, Disk
from storage.log import Log

NOW = 1_700_000_000_000


class Clock:
    """A clock that moves when told to."""

    def __init__(self, now_ms: int = NOW) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def log_config(**changes: Any) -> LogConfig:
    return replace(LogConfig.defaults(), **changes)


def batch(*values: bytes, timestamp: int = NOW, key: bytes | None = b"k", **options: Any) -> memoryview:
    """A writable batch, as a produce request holds it."""
    return memoryview(build_batch([Record(0, timestamp, key, value) for value in values], **options))


def timed_batch(*timestamps: int, **options: Any) -> memoryview:
    return memoryview(build_batch([Record(0, at, b"k", b"v%d" % at) for at in timestamps], **options))


def open_log(
    directory: Path, config: LogConfig | None = None, *, disk: Disk = DISK, clock: Any = None, **options: Any
) -> Log:
    path = str(directory / "orders-0")
    return Log.open(path, "orders", 0, config or log_config(), disk=disk, clock=clock or Clock(), **options)


def append(log: Log, records: memoryview, *, leader_epoch: int = 0, now_ms: int = NOW, **options: Any) -> Any:
    return log.append_as_leader(records, leader_epoch=leader_epoch, now_ms=now_ms, **options)


def fill(log: Log, values: Iterable[bytes]) -> None:
    for value in values:
        append(log, batch(value))


def contents(log: Log) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every record from the log start on, read as a consumer would."""
    found: list[tuple[int, bytes | None]] = []
    offset = log.log_start_offset
    while True:
        result = log.read(offset, 1 << 20, end_offset=log.log_end_offset)
        if result.records is None:
            return found
        data = result.records.read()
        assert len(data) == len(result.records)
        for position, header in iter_batches(data):
            records = iter_records(data[position : position + header.size])
            found += [(record.offset, record.value) for record in records if record.offset >= offset]
            offset = header.next_offset
