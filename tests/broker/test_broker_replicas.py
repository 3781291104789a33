"""Partitions of a broker as the metadata comes in, on real logs."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from support.fake_disk import FakeDisk
from support.logs import NOW, batch, log_config
from support.metadata import image_of

import broker.replicas
from broker.replicas import ReplicaManager
from config.broker import BrokerConfig
from controller.delta import apply_records
from protocol.errors import ApiError, ErrorCode
from protocol.metadata.partition_record import PartitionRecord
from protocol.metadata.topic_record import TopicRecord
from protocol.uuids import Uuid
from storage.log_manager import LogManager

TOPIC_ID = Uuid(b"t" * 16)


async def test_a_log_that_could_not_be_created_is_created_when_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The directory stays online, so nobody else leads: a topic that was created while the disk was full had no
    leader until this broker was restarted."""
    monkeypatch.setattr(broker.replicas, "RETRY_S", 0.01)
    disk = FakeDisk(tmp_path)
    logs = LogManager(BrokerConfig.from_map({"log.dirs": str(tmp_path)}), disk=disk)
    await logs.start(lambda topic: log_config())
    replicas = ReplicaManager(logs.config, 1, logs)
    late: list[tuple[str, int]] = []
    replicas.on_late = lambda topic, index: late.append((topic, index))
    empty = image_of([])
    replicas.load(empty)
    disk.full = True
    records = [
        TopicRecord(name="t", topic_id=TOPIC_ID),
        PartitionRecord(partition_id=0, topic_id=TOPIC_ID, replicas=[1], isr=[1], leader=1, leader_epoch=0),
    ]
    replicas.on_image(*apply_records(empty, records, offset=10, epoch=1))
    with pytest.raises(ApiError) as refused:
        replicas.partition("t", 0)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    await asyncio.sleep(0.1)
    before = len(os.listdir("/proc/self/fd"))
    await asyncio.sleep(0.1)
    assert len(os.listdir("/proc/self/fd")) <= before
    assert not late and [one.message for one in caplog.records if "is offline" in one.message] != []
    disk.full = False
    deadline = time.monotonic() + 10
    while not late:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)
    assert late == [("t", 0)]
    replicas.partition("t", 0).append(batch(b"v"), NOW, acks=1)
    assert sum("is offline" in one.message for one in caplog.records) == 1
    await replicas.stop()
    await logs.shutdown()
