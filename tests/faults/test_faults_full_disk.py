"""A full disk: writes are refused with KAFKA_STORAGE_ERROR, reads go on, and nothing is corrupt after a restart.

Two ways to run out of space: a limit on the size of files (works for everyone, everywhere), and a small file system
of its own (where we may mount one), which gives the real ENOSPC.
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaStorageError
from py4j.java_gateway import JavaGateway
from support.broker_process import BrokerProcess
from support.data_directory import DataDirectoryReader
from support.tools import StockTools

TOPIC = "filled"
PARTITION = TopicPartition(TOPIC, 0)
FILE_LIMIT = 3 * 1024 * 1024
FILE_SYSTEM_MB = 96
KEPT_FREE = 2 * 1024 * 1024

Fill = Callable[[BrokerProcess], Callable[[], None]]


def mount(directory: Path) -> bool:
    options = f"size={FILE_SYSTEM_MB}m"
    try:
        run = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)], capture_output=True, check=False
        )
    except OSError:
        return False
    return run.returncode == 0


def unmount(directory: Path) -> None:
    subprocess.run(["umount", "-l", str(directory)], check=True)


@functools.cache
def may_mount() -> bool:
    with tempfile.TemporaryDirectory() as directory:
        if os.geteuid() != 0 or not mount(Path(directory)):
            return False
        unmount(Path(directory))
        return True


def limit_file_sizes(broker: BrokerProcess) -> Callable[[], None]:
    """From now on no file of the broker may grow beyond the limit."""
    before = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (FILE_LIMIT, before[1]))
    return lambda: None  # the limit dies with the process


def fill_file_system(broker: BrokerProcess) -> Callable[[], None]:
    """A filler file leaves little; freeing the space again removes it."""
    filler = broker.data_dir.parent / "filler"
    state = os.statvfs(broker.data_dir)
    with open(filler, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, state.f_bavail * state.f_frsize - KEPT_FREE)
    return filler.unlink


@contextlib.contextmanager
def directory_for(fill: Fill, tmp_path: Path) -> Iterator[Path]:
    if fill is not fill_file_system:
        yield tmp_path
        return
    mounted = tmp_path / "small"
    mounted.mkdir()
    assert mount(mounted)
    try:
        yield mounted
    finally:
        unmount(mounted)


def read_values(broker: BrokerProcess) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None, auto_offset_reset="earliest")
    consumer.assign([PARTITION])
    end = consumer.end_offsets([PARTITION])[PARTITION]
    values: list[bytes] = []
    while consumer.position(PARTITION) < end:
        for records in consumer.poll(timeout_ms=1000).values():
            values += [record.value[:8] for record in records]
    consumer.close()
    return values


def produce_until_refused(broker: BrokerProcess) -> list[bytes]:
    """The values that were acknowledged before the first KAFKA_STORAGE_ERROR."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all", retries=0, enable_idempotence=False)
    acknowledged: list[bytes] = []
    try:
        for number in range(2000):
            value = b"%08d" % number
            producer.send(TOPIC, value + os.urandom(20_000), partition=0).get(20)
            acknowledged.append(value)
    except KafkaStorageError:
        return acknowledged
    finally:
        producer.close(timeout=1)
    raise AssertionError("40 MB were written to a disk that is full")


@pytest.mark.parametrize("fill", [limit_file_sizes] + ([fill_file_system] if may_mount() else []))
def test_a_full_disk_refuses_writes_and_serves_reads(
    fill: Fill, tmp_path: Path, jvm: JavaGateway, stock_tools: StockTools
) -> None:
    with directory_for(fill, tmp_path) as place:
        broker = BrokerProcess(tmp_path / "broker", data_dir=place / "data")
        try:
            broker.start()
            admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
            admin.create_topics({TOPIC: {}}, wait_for_metadata=True)
            admin.close()
            make_room = fill(broker)
            acknowledged = produce_until_refused(broker)
            assert len(acknowledged) > 20

            assert read_values(broker) == acknowledged, "reads go on, and show nothing that was not acknowledged"
            assert "Traceback" not in broker.log_text

            broker.kill()
            make_room()
            broker.start()
            assert read_values(broker) == acknowledged
            producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all")
            after = producer.send(TOPIC, b"%08d" % 9999, partition=0).get(20)
            producer.close()
            assert after.offset == len(acknowledged)
            broker.stop()
            DataDirectoryReader(stock_tools, jvm, broker.data_dir).read_all()
        finally:
            broker.close()
