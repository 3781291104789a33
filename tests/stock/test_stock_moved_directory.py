"""A data directory moves from Barnabas to Apache Kafka and back: both find everything in it, and go on writing."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from py4j.java_gateway import JavaGateway
from support.anchor import AnchorKafka
from support.broker_process import BrokerProcess
from support.data_directory import METADATA_PARTITION, DataDirectoryReader
from support.group_requests import commit, fetch, join, sync
from support.scenario import Server
from support.talk import Talk
from support.tools import DUMP_LOG, StockTools
from support.workload import varied_workload

pytestmark = pytest.mark.stock

COMMITTED = {0: 5, 1: 5}
TOPIC = "codec-None"


class Contents(NamedTuple):
    """What a client sees of the records and of a group."""

    first_offsets: dict[TopicPartition, int]
    end_offsets: dict[TopicPartition, int]
    records: int
    committed: dict[int, int]


def contents(server: Server) -> Contents:
    consumer = KafkaConsumer(bootstrap_servers=server.bootstrap)
    partitions = [
        TopicPartition(topic, partition)
        for topic in sorted(consumer.topics())
        if not topic.startswith("__")
        for partition in consumer.partitions_for_topic(topic)
    ]
    first, end = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    consumer.assign(partitions)
    consumer.seek_to_beginning()
    records = 0
    while any(consumer.position(partition) < end[partition] for partition in partitions):
        records += sum(map(len, consumer.poll(timeout_ms=1000).values()))
    consumer.close()
    with Talk(server.port) as talk:
        talk.find_coordinator("moved")
        wanted = fetch("moved", topics={TOPIC: list(COMMITTED)})
        answer = talk.until(wanted, 9, lambda found: found.groups[0].error_code == 0)
    offsets = {one.partition_index: one.committed_offset for one in answer.groups[0].topics[0].partitions}
    return Contents(first, end, records, offsets)


def commit_something(server: Server) -> None:
    with Talk(server.port) as talk:
        talk.find_coordinator("moved")
        member = talk.wire.ask(join("moved-members", topics=(TOPIC,)), 3)
        id_, generation = member.member_id, member.generation_id
        talk.wire.ask(sync("moved-members", id_, generation, assigned=(id_,)), 2)
        answer = talk.wire.ask(commit("moved", TOPIC, *COMMITTED, offset=COMMITTED[0]), 9)
        assert [one.error_code for one in answer.topics[0].partitions] == [0, 0]


def write_one(server: Server) -> None:
    producer = KafkaProducer(bootstrap_servers=server.bootstrap, acks="all")
    producer.send("empty", b"written by the other").get(30)
    producer.close()


@pytest.mark.slow
def test_a_data_directory_moves_to_apache_kafka_and_back(
    tmp_path: Path, stock_tools: StockTools, jvm: JavaGateway
) -> None:
    often = {"metadata.log.max.record.bytes.between.snapshots": "3000"}
    ours = BrokerProcess(tmp_path / "ours", extra=often)
    theirs = AnchorKafka(tmp_path / "theirs", tools=stock_tools)
    try:
        ours.start()
        varied_workload(ours.bootstrap)
        commit_something(ours)
        written = contents(ours)
        assert written.committed == COMMITTED
        ours.stop()
        check_files(ours.data_dir, stock_tools, jvm)

        shutil.move(ours.data_dir, theirs.data_dir)
        theirs.start()
        assert contents(theirs) == written
        write_one(theirs)
        written = contents(theirs)
        theirs.stop()

        shutil.move(theirs.data_dir, ours.data_dir)
        ours.start()
        assert contents(ours) == written
        write_one(ours)
        ours.stop()
        assert "Traceback" not in ours.log_text
    finally:
        ours.close()
        theirs.close()


def check_files(data_dir: Path, tools: StockTools, jvm: JavaGateway) -> None:
    """kafka-dump-log on all of it, with snapshots of the metadata, and with the decoder for groups."""
    assert len(list((data_dir / METADATA_PARTITION).glob("*-*.checkpoint"))) > 1, "no snapshot but the first was taken"
    reader = DataDirectoryReader(tools, jvm, data_dir)
    reader.read_all()
    assert reader.metadata_records["BROKER_REGISTRATION_CHANGE_RECORD"] > 0

    (log,) = (data_dir / "__consumer_offsets-0").glob("*.log")
    dumped = tools.run(DUMP_LOG, "--offsets-decoder", "--print-data-log", "--files", str(log))
    assert dumped.code == 0
    keys = re.findall(r"key: (\{.*?\}) payload", dumped.out)
    assert any('"group":"moved"' in key and f'"topic":"{TOPIC}"' in key for key in keys), dumped.out
    assert any('"group":"moved-members"' in key for key in keys), dumped.out
