"""The mirror between two brokers: records as they were, one way and both ways."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.broker_process import BrokerProcess
from support.spark import JobRun, Record, read_topic, send
from support.spark_topics import Lab

from pipeline import registry
from pipeline.generators import Event


@pytest.fixture(scope="module")
def other_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    server = BrokerProcess(tmp_path_factory.mktemp("other-broker"), extra={"log.retention.ms": "-1"})
    try:
        server.start()
        yield server
        server.stop()
    finally:
        server.close()


def readings(seed: int, count: int) -> list[Event]:
    return list(registry.generator("mirror")(seed, count, 4))


def by_key(records: list[Record] | list[Event]) -> dict[bytes | None, list[tuple[object, ...]]]:
    """What a consumer sees of each key, in order: value, timestamp, headers."""
    found: dict[bytes | None, list[tuple[object, ...]]] = defaultdict(list)
    for record in records:
        time = record.timestamp if isinstance(record, Record) else record.timestamp_ms
        found[record.key].append((record.value, time, tuple(record.headers)))
    return found


@dataclass
class Pair:
    """Two clusters, a and b, and a mirror each way for one topic."""

    forth: JobRun
    back: JobRun

    def run(self) -> None:
        self.forth.run()
        self.back.run()


def pair(spark: SparkSession, a: str, b: str, directory: Path, topic: str, **settings: str) -> Pair:
    def mirror(source: str, target: str, names: tuple[str, str]) -> JobRun:
        own = directory / names[0]
        own.mkdir()
        given = {"topic.readings": rf"(.+\.)?{topic}", "target_bootstrap_servers": target, **settings}
        return JobRun(spark, source, own, "mirror", topic, {**given, "source": names[0], "target": names[1]})

    return Pair(mirror(a, b, ("a", "b")), mirror(b, a, ("b", "a")))


def test_active_passive(spark: SparkSession, lab: Lab, other_broker: BrokerProcess, tmp_path: Path) -> None:
    topic = lab.topic(3)
    mirror = pair(spark, lab.bootstrap, other_broker.bootstrap, tmp_path, topic, max_offsets_per_trigger="150").forth
    events = send(lab.bootstrap, readings(31, 400), {"readings": topic})
    mirror.run()
    mirrored = read_topic(other_broker.bootstrap, f"a.{topic}")
    assert by_key(mirrored) == by_key(events), "keys, values, headers, timestamps, and the order of each key"
    assert sorted((record.partition, repr(record.value)) for record in mirrored) == sorted(
        (record.partition, repr(record.value)) for record in lab.records(topic)
    ), "and the partition, in a topic with as many as the source has"
    assert {record.partition for record in mirrored} == {0, 1, 2}
    assert sum(one.input_rows for one in mirror.progress) == 400, "each record is read once"
    events += send(lab.bootstrap, readings(32, 100), {"readings": topic})
    mirror.run()
    assert by_key(read_topic(other_broker.bootstrap, f"a.{topic}")) == by_key(events), "and on from there"


@pytest.mark.parametrize("keep_names", [False, True])
def test_active_active_makes_no_loop(
    spark: SparkSession, lab: Lab, other_broker: BrokerProcess, tmp_path: Path, keep_names: bool
) -> None:
    topic = lab.topic()
    there = Lab(spark, other_broker.bootstrap, lab.name)
    there.create(topic)
    mirrors = pair(spark, lab.bootstrap, there.bootstrap, tmp_path, topic, keep_names=str(keep_names).lower())
    ours = send(lab.bootstrap, readings(33, 150), {"readings": topic})
    theirs = send(there.bootstrap, readings(34, 150), {"readings": topic})
    mirrors.run()
    mirrors.run()
    if keep_names:
        marked = [event._replace(headers=(*event.headers, ("barnabas.origin", b"a"))) for event in ours]
        assert by_key(lab.records(topic)[:150]) == by_key(ours)
        assert count(there.records(topic)) == count([*theirs, *marked])
        marked = [event._replace(headers=(*event.headers, ("barnabas.origin", b"b"))) for event in theirs]
        assert count(lab.records(topic)) == count([*ours, *marked])
    else:
        assert by_key(lab.records(topic)) == by_key(ours) and by_key(there.records(topic)) == by_key(theirs)
        assert by_key(there.records(f"a.{topic}")) == by_key(ours)
        assert by_key(lab.records(f"b.{topic}")) == by_key(theirs)
        assert not read_topic(lab.bootstrap, f"b.a.{topic}") and not read_topic(there.bootstrap, f"a.b.{topic}")


def count(records: list[Record] | list[Event]) -> list[str]:
    """All records whatever their order: two clusters' own records interleave as they like."""
    return sorted(repr((key, one)) for key, all_of_key in by_key(records).items() for one in all_of_key)
