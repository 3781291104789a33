"""Apache Kafka 4.3.1 as judge: the same bootstrap, the same elections, the same image from our files."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway
from support.anchor import AnchorKafka
from support.kafka_metadata import KafkaMetadata, normal
from support.logs import Clock
from support.metadata import (
    create,
    image_of,
    logged,
    metadata_directory,
    producer_ids,
    register_broker,
    started,
    topic,
)
from support.metadata_history import history
from support.tools import DUMP_LOG, StockTools

from config.broker import BrokerConfig
from controller.checkpoint import list_snapshots
from controller.controller import Controller
from controller.record_versions import record_version
from controller.snapshot_records import image_records
from controller.storage_format import ensure_formatted
from controller.transactions import TransactionBuffer
from protocol.metadata.broker_registration_change_record import BrokerRegistrationChangeRecord
from protocol.metadata.no_op_record import NoOpRecord
from protocol.uuids import Uuid

pytestmark = pytest.mark.stock


@pytest.fixture(scope="module")
def kafka(jvm: JavaGateway) -> KafkaMetadata:
    return KafkaMetadata(jvm)


@pytest.mark.parametrize("seed", range(6))
def test_kafka_builds_the_same_image_from_the_same_records(kafka: KafkaMetadata, seed: int) -> None:
    records = history(Random(seed), 120)
    ours = sorted(repr(normal(record)) for record in image_records(image_of(records)))
    theirs = kafka.image_records([(record_version(record, 30), record) for record in records])
    assert ours == theirs


async def test_kafka_reads_our_log_and_snapshot_and_sees_our_image(
    kafka: KafkaMetadata, stock_tools: StockTools, tmp_path: Path
) -> None:
    controller = await started(tmp_path)
    await controller.create_topics(create(topic("a", 3, configs={"retention.ms": "7"}), topic("b")))
    await producer_ids(controller)
    await controller._snapshotter.write()
    await controller.shutdown()
    log = metadata_directory(tmp_path) / "00000000000000000000.log"
    image = controller.image
    ours = sorted(repr(normal(record)) for record in image_records(image))
    read = logged(log)
    versions = {id(record): version for version, record in read}
    visible = TransactionBuffer().feed(record for _, record in read)
    assert kafka.image_records([(versions[id(record)], record) for record in visible]) == ours
    snapshot = metadata_directory(tmp_path) / list_snapshots(str(metadata_directory(tmp_path)))[-1].file_name
    for path in (log, snapshot, tmp_path / "bootstrap.checkpoint"):
        dumped = stock_tools.run(DUMP_LOG, "--cluster-metadata-decoder", "--deep-iteration", "--files", str(path))
        assert dumped.code == 0 and not dumped.err, dumped
        assert dumped.out.count("payload: {") >= len(logged(path)) and "Could not" not in dumped.out
        assert dumped.out.count("isvalid: true") == dumped.out.count("baseOffset: ")


async def test_the_bootstrap_is_kafkas_record_by_record(anchor: AnchorKafka, tmp_path: Path) -> None:
    """Format and first start, from the same properties, up to the broker's being active."""
    config = BrokerConfig.load(str(anchor.properties_path), [f"log.dirs={tmp_path}"])
    controller = Controller(config, ensure_formatted(config), clock=Clock())
    await controller.start()
    await register_broker(controller)
    await controller.shutdown()
    ours, theirs = _beginning(tmp_path), _beginning(anchor.data_dir)
    for mine, kafkas in zip(ours, theirs, strict=True):
        assert mine == kafkas
    assert any("'min.insync.replicas', value='1'" in record for record in ours)
    assert _texts(tmp_path / "bootstrap.checkpoint") == _texts(anchor.data_dir / "bootstrap.checkpoint")
    for directory in (tmp_path, anchor.data_dir):
        names = {path.name for path in metadata_directory(directory).iterdir()}
        assert "00000000000000000000-0000000000.checkpoint" in names and "quorum-state" in names
    ours_state = (metadata_directory(tmp_path) / "quorum-state").read_text()
    assert ours_state == (metadata_directory(anchor.data_dir) / "quorum-state").read_text()


def _texts(path: Path) -> list[str]:
    return [f"v{version} {record!r}" for version, record in logged(path)]


def _beginning(directory: Path) -> list[str]:
    """The records up to the broker's being active; ids of one installation aside.

    Unfencing and the list of cordoned directories come with Kafka's first heartbeats, in either order.
    """
    found, last = [], []
    for version, record in logged(metadata_directory(directory) / "00000000000000000000.log"):
        shown: Any = normal(record)
        if hasattr(shown, "incarnation_id"):
            shown.incarnation_id = Uuid.ZERO
        if hasattr(shown, "broker_epoch"):
            shown.broker_epoch = 0  # Kafka's first NoOpRecord may come before or after the registration
        if getattr(shown, "log_dirs", None):
            shown.log_dirs = [Uuid.ZERO for _ in shown.log_dirs]
        if isinstance(record, BrokerRegistrationChangeRecord):
            last.append(f"v{version} {shown!r}")
        elif not isinstance(record, NoOpRecord):
            found.append(f"v{version} {shown!r}")
        if len(last) == 2:
            return found + sorted(last)
    raise AssertionError(f"{directory}: the broker was never unfenced: {found}")
