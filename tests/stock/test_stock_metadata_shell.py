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
LOG = "__cluster_metadata-0/00000000000000000000.log"


def create(port: int, name: str) -> None:
    setting = CreatableTopicConfig(name=SETTING[0], value=SETTING[1])
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1, configs=[setting])
    assert ask(port, CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics[0].error_code == 0


def snapshots(data_dir: Path) -> list[Path]:
    return sorted((data_dir / "__cluster_metadata-0").glob("*.checkpoint"))


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
        broker.stop()
    finally:
        broker.close()
    create(anchor.port, TOPIC)
    copy = tmp_path / "theirs" / LOG
    copy.parent.mkdir(parents=True)
    shutil.copy(anchor.data_dir / LOG, copy)  # the tool wants the lock of the directory it reads from
    theirs = shown(copy, *WHERE)
    assert theirs.count("PartitionRegistration(replicas=[1]") == 2 and SETTING[1] in theirs, theirs
    assert shown(broker.data_dir / LOG, *WHERE) == theirs
    assert shown(snapshots(broker.data_dir)[-1], *WHERE) == theirs
