"""kafka-metadata-shell on the metadata log and on a snapshot of ours, beside the same on Apache Kafka's log."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.anchor import AnchorKafka
from support.broker_process import BrokerProcess
from support.jars import class_path, shell_jars
from support.processes import wait_until
from support.tools import METADATA_SHELL, java_command
from support.wire import ask

from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

pytestmark = pytest.mark.stock

TOPIC = "shell.a"
SETTING = ("retention.ms", "1234567")
WHERE = (f"/image/topics/byName/{TOPIC}", f"/image/configs/TOPIC:{TOPIC}")
ATTEMPTS = 8
METADATA = "__cluster_metadata-0"
LOG = f"{METADATA}/00000000000000000000.log"


def create(port: int, name: str) -> None:
    setting = CreatableTopicConfig(name=SETTING[0], value=SETTING[1])
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1, configs=[setting])
    assert ask(port, CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics[0].error_code == 0


def snapshots(data_dir: Path) -> list[Path]:
    return sorted((data_dir / METADATA).glob("*.checkpoint"))


def copied(data_dir: Path, to: Path) -> Path:
    """Of a node that runs: stopping it would change what the log says. The tool wants the lock of what it reads."""
    shutil.copytree(data_dir / METADATA, to / METADATA)
    return to


def shown(file: Path, *where: str) -> str:
    """The tool begins to answer when it has applied a first record, be it of Apache Kafka's log or ours: what is not
    there may only not be there yet. Ids differ from cluster to cluster.
    """
    jars = os.pathsep.join([*shell_jars(), class_path()])
    command = [*java_command()[:-1], jars, METADATA_SHELL, "--snapshot", str(file), "tree", *where]
    for _ in range(ATTEMPTS):
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert run.returncode == 0, run
        if "No such file" not in run.stdout:
            break
    return re.sub(r"(?<![\w-])[\w-]{22}(?![\w-])", "<id>", run.stdout)


def test_the_shell_shows_the_same_of_both(anchor: AnchorKafka, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "ours", extra={"metadata.log.max.record.bytes.between.snapshots": "1000"})
    try:
        broker.start()
        create(broker.port, TOPIC)
        before = snapshots(broker.data_dir)
        for number in range(10):
            create(broker.port, f"filler-{number}")
        wait_until(lambda: snapshots(broker.data_dir)[-1:] > before[-1:], 10, "a snapshot with the topic in it")
        ours = copied(broker.data_dir, tmp_path / "copy of ours")
    finally:
        broker.close()
    create(anchor.port, TOPIC)
    theirs = shown(copied(anchor.data_dir, tmp_path / "copy of theirs") / LOG, *WHERE)
    assert theirs.count("PartitionRegistration(replicas=[1]") == 2 and SETTING[1] in theirs, theirs
    assert shown(ours / LOG, *WHERE) == theirs
    assert shown(snapshots(ours)[-1], *WHERE) == theirs
