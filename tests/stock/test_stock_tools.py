"""Apache Kafka's own command-line tools against Barnabas and against Apache Kafka 4.3.1: the same output.

Every scenario runs the same calls on both servers and compares exit codes, standard output and standard error, with
ids, times, ports and paths aside. The topics of a scenario start with its own name, so that scenarios do not see each
other on the shared servers.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.anchor import AnchorKafka
from support.broker_process import BrokerProcess
from support.scenario import (
    Step,
    run_scenario,
    sorted_log_dirs,
    without_numbers,
)
from support.tools import (
    CLUSTER,
    CONFIGS,
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    DELETE_RECORDS,
    GET_OFFSETS,
    LOG_DIRS,
    METADATA_QUORUM,
    TOPICS,
    TRANSACTIONS,
    StockTools,
)

pytestmark = pytest.mark.stock

AT = ("--bootstrap-server", "{bootstrap}")


def topics(*arguments: str, until: str | None = None) -> Step:
    return Step(TOPICS, (*AT, *arguments), until=until)


def described(topic: str, partitions: int = 1) -> Step:
    """Describe, once the change before it shows."""
    return topics("--describe", "--topic", topic, until=f"PartitionCount: {partitions}\t")


def created(topic: str, *arguments: str, partitions: int = 1) -> list[Step]:
    count = ("--partitions", str(partitions)) if partitions > 1 else ()
    return [topics("--create", "--topic", topic, *count, *arguments), described(topic, partitions)]


def configs(topic: str, *arguments: str, until: str | None = None) -> Step:
    return Step(CONFIGS, (*AT, "--entity-type", "topics", "--entity-name", topic, *arguments), until=until)


def produced(topic: str, text: str, *arguments: str) -> Step:
    """One record per request: batch boundaries, and with them sizes on disk, are the same on both sides.

    `--timeout 0`: the console producer otherwise lingers for a second per record.
    """
    return Step(CONSOLE_PRODUCER, (*AT, "--topic", topic, "--sync", "--timeout", "0", *arguments), stdin=text)


def consumed(topic: str, *arguments: str, partition: int = 0, offset: str = "earliest") -> Step:
    where = ("--topic", topic, "--partition", str(partition), "--offset", offset)
    return Step(CONSOLE_CONSUMER, (*AT, *where, "--timeout-ms", "10000", *arguments))


def offsets(*arguments: str) -> Step:
    return Step(GET_OFFSETS, (*AT, *arguments))


def properties(*items: str, option: str = "--formatter-property") -> list[str]:
    return [word for item in items for word in (option, item)]


EVERYTHING = properties(
    "print.key=true", "print.headers=true", "print.timestamp=true", "print.offset=true", "print.partition=true"
)

TOPIC_LIFE = [
    *created("life.a", "--replication-factor", "1", "--config", "retention.ms=3600000", partitions=3),
    *created("life.b", "--config", "cleanup.policy=compact", "--config", "segment.bytes=1048576"),
    topics("--create", "--topic", "life.assigned", "--replica-assignment", "1,1"),
    described("life.assigned", 2),
    topics("--list", "--topic", "life\\..*"),
    topics("--list", "--exclude-internal", "--topic", "life\\.a"),
    topics("--describe", "--topic", "life\\.[ab]", "--topics-with-overrides"),
    topics("--describe", "--topic", "life\\..*", "--under-replicated-partitions"),
    topics("--describe", "--topic", "life\\..*", "--unavailable-partitions"),
    topics("--describe", "--topic", "life\\..*", "--under-min-isr-partitions"),
    topics("--describe", "--topic", "life\\.a", "--at-min-isr-partitions"),
    topics("--alter", "--topic", "life.a", "--partitions", "5"),
    described("life.a", 5),
    topics("--delete", "--topic", "life.a"),
    topics("--delete", "--topic", "life.b"),
    topics("--list", "--topic", "life\\..*", until=r"^life\.assigned\s*$"),
    topics("--describe", "--topic", "life.a"),
    *created("life.a", partitions=2),
    topics("--delete", "--topic", "life\\..*"),
    topics("--list", "--topic", "life\\..*", until=r"^\s*$"),
]

TOPIC_ERRORS = [
    *created("wrong.a", partitions=2),
    topics("--create", "--topic", "wrong.a"),
    topics("--create", "--topic", "wrong.a", "--if-not-exists"),
    topics("--create", "--topic", "wrong_a"),
    topics("--create", "--topic", "wrong/slash"),
    topics("--create", "--topic", "wrong" + "x" * 245),
    topics("--create", "--topic", ".."),
    topics("--create", "--topic", "wrong-none", "--partitions", "0"),
    topics("--create", "--topic", "wrong-none", "--partitions", "-5"),
    topics("--create", "--topic", "wrong-none", "--replication-factor", "2"),
    topics("--create", "--topic", "wrong-none", "--replication-factor", "0"),
    topics("--create", "--topic", "wrong-none", "--replica-assignment", "7"),
    topics("--create", "--topic", "wrong-none", "--replica-assignment", "1:1"),
    topics("--create", "--topic", "wrong-none", "--config", "no.such.setting=1"),
    topics("--create", "--topic", "wrong-none", "--config", "retention.ms=soon"),
    topics("--create", "--topic", "wrong-none", "--config", "segment.bytes=1"),
    topics("--create", "--topic", "wrong-none", "--config", "cleanup.policy=shred"),
    topics("--create", "--topic", "wrong-none", "--config", "min.insync.replicas=0"),
    topics("--alter", "--topic", "wrong.a", "--partitions", "1"),
    topics("--alter", "--topic", "wrong.a", "--partitions", "2"),
    topics("--alter", "--topic", "wrong.a", "--partitions", "3", "--replica-assignment", "1,1,9"),
    topics("--alter", "--topic", "wrong-none", "--partitions", "3"),
    topics("--alter", "--topic", "wrong-none", "--partitions", "3", "--if-exists"),
    topics("--delete", "--topic", "wrong-none"),
    topics("--delete", "--topic", "wrong-none", "--if-exists"),
    topics("--describe", "--topic", "wrong-none"),
    topics("--describe", "--topic", "wrong-none", "--if-exists"),
    topics("--describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAAFw"),
    topics("--list", "--topic", "wrong.*"),
]

CONSOLE = [
    *created("console.a", partitions=3),
    *created("console.plain"),
    produced(
        "console.a",
        "colour:red,size:\tapple\tone\ncolour:green\tpear\ttwo\nNULL\tplum\tthree\n",
        *properties("parse.key=true", "parse.headers=true", "null.marker=NULL", option="--reader-property"),
    ),
    produced(
        "console.a",
        "apple=second\nquince=\ncherry=∅\n",
        *properties("parse.key=true", "key.separator==", "null.marker=∅", option="--reader-property"),
    ),
    produced("console.plain", "".join(f"line {number} ü\n" for number in range(7))),
    offsets("--topic", "console\\..*"),
    consumed("console.plain", "--max-messages", "7"),
    consumed("console.plain", "--max-messages", "2", *EVERYTHING, offset="3"),
    consumed("console.plain", "--max-messages", "1", *EVERYTHING, offset="6"),
    Step(
        CONSOLE_CONSUMER,
        (*AT, *("--topic", "console.plain", "--partition", "0", "--offset", "latest", "--timeout-ms", "500")),
    ),
]
# murmur2 of the keys decides which partition holds how many
CONSOLE += [
    consumed(
        "console.a",
        *("--max-messages", str(records), *EVERYTHING),
        *properties("null.literal=<null>", "key.separator= | ", "headers.separator=;"),
        partition=partition,
    )
    for partition, records in enumerate((1, 3, 2))
]

CODECS = [
    step
    for codec in ("none", "gzip", "snappy", "lz4", "zstd")
    for step in (
        *created(f"codec.{codec}"),
        produced(f"codec.{codec}", f"{codec} one\n{codec} two\n" + "x" * 3000 + "\n", "--compression-codec", codec),
        consumed(f"codec.{codec}", "--max-messages", "3", *EVERYTHING),
        offsets("--topic", f"codec.{codec}"),
    )
]

RECOMPRESSION = [
    *created("recompressed", "--config", "compression.type=zstd"),
    produced("recompressed", "first\nsecond\n" + "y" * 2000 + "\n", "--compression-codec", "gzip"),
    consumed("recompressed", "--max-messages", "3", *EVERYTHING),
    *created("appendtime", "--config", "message.timestamp.type=LogAppendTime"),
    produced("appendtime", "first\nsecond\n", "--compression-codec", "lz4"),
    consumed("appendtime", "--max-messages", "2", *EVERYTHING),
]

AUTO_CREATION = [
    produced("auto.created", "made by producing\n"),
    described("auto.created"),
    consumed("auto.created", "--max-messages", "1"),
]

TOPIC_CONFIGS = [
    *created("config.a"),
    configs("config.a", "--describe"),
    configs("config.a", "--describe", "--all"),
    configs("config.a", "--alter", "--add-config", "retention.ms=1000,max.message.bytes=2000"),
    configs("config.a", "--describe", until="max.message.bytes=2000"),
    configs("config.a", "--describe", "--all"),
    configs("config.a", "--alter", "--add-config", "cleanup.policy=[compact,delete],compression.type=lz4"),
    configs("config.a", "--describe", until="compression.type=lz4"),
    configs("config.a", "--alter", "--delete-config", "retention.ms"),
    configs("config.a", "--alter", "--delete-config", "flush.ms"),
    configs("config.a", "--alter", "--add-config", "retention.ms=forever"),
    configs("config.a", "--alter", "--add-config", "no.such.setting=1"),
    configs("config.a", "--alter", "--add-config", "segment.bytes=3"),
    configs("config.a", "--alter", "--delete-config", "no.such.setting"),
    configs("config.none", "--describe"),
    configs("config.none", "--alter", "--add-config", "retention.ms=1"),
    described("config.a"),
    Step(CONFIGS, (*AT, "--describe", "--entity-type", "topics", "--entity-name", "config.a"), until="lz4"),
]

OFFSETS = [
    *created("offsets.a", partitions=2),
    *created("offsets.b"),
    produced("offsets.b", "1\n2\n3\n"),
    produced("offsets.a", "only\n", *properties("parse.key=false", option="--reader-property")),
    offsets("--topic", "offsets.b"),
    *(
        offsets("--topic", "offsets.b", "--time", when)
        for when in ("earliest", "latest", "earliest-local", "latest-tiered")
    ),
    # The console producer stamps each record with the clock: of one record alone is it certain which is the latest.
    *created("offsets.one"),
    produced("offsets.one", "only\n"),
    offsets("--topic", "offsets.one", "--time", "max-timestamp"),
    offsets("--topic", "offsets.one", "--time", "-3"),
    offsets("--topic", "offsets.b", "--time", "-1"),
    offsets("--topic", "offsets.b", "--time", "-2"),
    offsets("--topic", "offsets.b", "--time", "0"),
    offsets("--topic", "offsets.b", "--time", "4102444800000"),
    offsets("--topic-partitions", "offsets.b:0,offsets.b:0-2"),
    offsets("--topic", "offsets.b", "--partitions", "0"),
    offsets("--topic", "offsets.b", "--partitions", "5"),
    offsets("--topic", "offsets.none"),
    offsets("--topic", "offsets.b", "--time", "yesterday"),
]

LOG_DIRECTORIES = [
    *created("dirs.a", partitions=3),
    produced(
        "dirs.a", "alpha=1\nbeta=2\n", *properties("parse.key=true", "key.separator==", option="--reader-property")
    ),
    Step(LOG_DIRS, (*AT, "--describe", "--topic-list", "dirs.a"), shape=sorted_log_dirs),
    Step(LOG_DIRS, (*AT, "--describe", "--topic-list", "dirs.a", "--broker-list", "1"), shape=sorted_log_dirs),
    Step(LOG_DIRS, (*AT, "--describe", "--topic-list", "dirs.none"), shape=sorted_log_dirs),
    Step(LOG_DIRS, (*AT, "--describe", "--broker-list", "8"), shape=sorted_log_dirs),
]


def delete_records(file: str) -> Step:
    return Step(DELETE_RECORDS, (*AT, "--offset-json-file", f"{{dir}}/{file}"))


DELETIONS = {
    "two.json": [("deletion.a", 0, 2)],
    "all.json": [("deletion.a", 0, -1)],
    "beyond.json": [("deletion.a", 0, 99)],
    "duplicate.json": [("deletion.a", 0, 1), ("deletion.a", 0, 2)],
}

DELETE_RECORD_STEPS = [
    *created("deletion.a"),
    produced("deletion.a", "0\n1\n2\n3\n4\n"),
    delete_records("two.json"),
    offsets("--topic", "deletion.a", "--time", "earliest"),
    consumed("deletion.a", "--max-messages", "3", *EVERYTHING),
    delete_records("two.json"),
    delete_records("beyond.json"),
    delete_records("duplicate.json"),
    delete_records("all.json"),
    offsets("--topic", "deletion.a", "--time", "earliest"),
    offsets("--topic", "deletion.a", "--time", "latest"),
    produced("deletion.a", "5\n"),
    consumed("deletion.a", "--max-messages", "1", *EVERYTHING),
]

CLUSTER_STEPS = [
    Step(CLUSTER, ("cluster-id", *AT)),
    Step(CLUSTER, ("list-endpoints", *AT), shape=without_numbers),
    Step(METADATA_QUORUM, (*AT, "describe", "--status"), shape=without_numbers),
    Step(METADATA_QUORUM, (*AT, "describe", "--replication"), shape=without_numbers),
]

PRODUCERS = [
    *created("producers.a"),
    produced("producers.a", "one\ntwo\n", "--command-property", "enable.idempotence=true"),
    Step(
        TRANSACTIONS,
        (*AT, "describe-producers", "--topic", "producers.a", "--partition", "0"),
        shape=without_numbers,
    ),
]

SCENARIOS = {
    "topic-life": TOPIC_LIFE,
    "topic-errors": TOPIC_ERRORS,
    "console": CONSOLE,
    "codecs": CODECS,
    "recompression": RECOMPRESSION,
    "auto-creation": AUTO_CREATION,
    "configs": TOPIC_CONFIGS,
    "offsets": OFFSETS,
    "log-dirs": LOG_DIRECTORIES,
    "delete-records": DELETE_RECORD_STEPS,
    "cluster": CLUSTER_STEPS,
    "producers": PRODUCERS,
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_same_output_as_apache_kafka(
    name: str, stock_tools: StockTools, anchor: AnchorKafka, broker: BrokerProcess, tmp_path: Path
) -> None:
    for file, deletions in DELETIONS.items():
        partitions = [{"topic": topic, "partition": p, "offset": offset} for topic, p, offset in deletions]
        (tmp_path / file).write_text(json.dumps({"partitions": partitions, "version": 1}))
    theirs = run_scenario(stock_tools, anchor, SCENARIOS[name], tmp_path)
    ours = run_scenario(stock_tools, broker, SCENARIOS[name], tmp_path)
    assert ours.splitlines() == theirs.splitlines()
