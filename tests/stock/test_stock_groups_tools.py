"""kafka-consumer-groups, kafka-groups and kafka-configs against Barnabas and Apache Kafka 4.3.1: the same output.

The groups are real: a Java consumer of each protocol reads the topics and commits before the tools look at it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from py4j.java_gateway import JavaGateway
from support.anchor import AnchorKafka
from support.broker_process import BrokerProcess
from support.java_clients import JavaConsumer
from support.processes import wait_until
from support.scenario import Server, Step, run_scenario
from support.talk import Talk
from support.tools import CONFIGS, CONSOLE_PRODUCER, CONSUMER_GROUPS, DELETE_RECORDS, GROUPS, StockTools
from support.tools import TOPICS as TOPIC_COMMAND

pytestmark = pytest.mark.stock

AT = ("--bootstrap-server", "{bootstrap}")

# Records an hour apart, so that times can be looked up: 2024-01-01T00:00:00Z and on.
FIRST_MS = 1_704_067_200_000
HOUR_MS = 3_600_000
PER_PARTITION = 6
TOPICS = {"cg.orders": 3, "cg.events": 1}

_MEMBER = re.compile(r"(tool-client)-[0-9a-f-]{36}")
_MEMBER_OF_NEW_PROTOCOL = re.compile(r"(?<![\w-])[\w-]{22}(?![\w-])")


def in_any_order(text: str) -> str:
    """Rows come in the order of a hash map, and columns are as wide as the widest id."""
    text = _MEMBER_OF_NEW_PROTOCOL.sub("<member>", _MEMBER.sub(r"\1-<id>", text))
    rows = [re.sub(r"[ \t]+", " ", row).strip() for row in text.splitlines()]
    return "\n".join(sorted(rows))


def own_groups(text: str) -> str:
    """A listing shows the groups of all tests on the server."""
    return in_any_order("\n".join(row for row in text.splitlines() if row.startswith(("cg-", "GROUP"))))


def groups(*arguments: str, until: str | None = None) -> Step:
    return Step(CONSUMER_GROUPS, (*AT, *arguments), shape=in_any_order, until=until)


def listed(*arguments: str, until: str | None = None) -> Step:
    return Step(CONSUMER_GROUPS, (*AT, "--list", *arguments), shape=own_groups, until=until)


def described(group: str, *arguments: str, until: str | None = None) -> Step:
    return groups("--describe", "--group", group, *arguments, until=until)


def reset(group: str, *arguments: str) -> Step:
    return groups("--reset-offsets", "--group", group, *arguments)


def active(group: str, kind: str) -> list[Step]:
    return [
        described(group, until=r"(?s)( 6 +6 +0 +[\w-]+ +/127\.0\.0\.1.*){4}"),
        described(group, "--offsets", "--verbose"),
        described(group, "--members"),
        described(group, "--members", "--verbose"),
        described(group, "--state"),
        described(group, "--state", "--verbose"),
        listed(until=re.escape(group)),
        listed("--state"),
        listed("--state", "stable"),
        listed("--state", "empty,dead"),
        listed("--type"),
        listed("--type", kind),
        listed("--type", "classic", "--state", "stable"),
        Step(GROUPS, (*AT, "--list"), shape=own_groups),
        Step(GROUPS, (*AT, "--list", "--group-type", kind), shape=own_groups),
        Step(GROUPS, (*AT, "--list", "--consumer"), shape=own_groups),
        reset(group, "--all-topics", "--to-earliest", "--execute"),
        groups("--delete", "--group", group),
        groups("--delete-offsets", "--group", group, "--topic", "cg.events"),
    ]


def emptied(group: str) -> list[Step]:
    every = ("--all-topics",)
    return [
        described(group, until="has no active members"),
        described(group, "--members"),
        described(group, "--members", "--verbose"),
        described(group, "--state"),
        listed("--state"),
        reset(group, *every, "--to-earliest"),
        reset(group, *every, "--to-earliest", "--dry-run"),
        reset(group, *every, "--to-earliest", "--execute"),
        described(group),
        reset(group, *every, "--to-latest", "--execute"),
        reset(group, "--topic", "cg.orders", "--shift-by", "-2", "--execute"),
        reset(group, "--topic", "cg.orders", "--shift-by", "1", "--dry-run"),
        reset(group, "--topic", "cg.orders:0,1", "--shift-by", "-100", "--execute"),
        reset(group, "--topic", "cg.orders:0", "--shift-by", "100", "--execute"),
        reset(group, "--topic", "cg.orders:2", "--to-offset", "3", "--execute"),
        reset(group, "--topic", "cg.orders:2", "--to-offset", "300", "--dry-run"),
        reset(group, "--topic", "cg.orders:2", "--to-offset", "-5", "--dry-run"),
        reset(group, *every, "--to-datetime", "2024-01-01T02:30:00.000", "--execute"),
        reset(group, *every, "--to-datetime", "2024-01-01T03:00:00.000Z", "--dry-run"),
        reset(group, *every, "--to-datetime", "2034-01-01T00:00:00.000", "--dry-run"),
        reset(group, *every, "--to-datetime", "someday", "--dry-run"),
        reset(group, *every, "--by-duration", "P20000D", "--dry-run"),
        reset(group, *every, "--by-duration", "PT1S", "--dry-run"),
        reset(group, *every, "--to-current", "--execute"),
        reset(group, *every, "--to-current", "--export"),
        reset(group, *every, "--from-file", "{dir}/offsets.csv", "--dry-run"),
        reset(group, *every, "--from-file", "{dir}/offsets.csv", "--execute"),
        reset(group, *every, "--from-file", "{dir}/beyond.csv", "--execute"),
        described(group),
        described(group, "--offsets", "--verbose"),
        reset(group, "--topic", "cg.none", "--to-earliest", "--dry-run"),
        reset(group, "--topic", "cg.orders:9", "--to-earliest", "--dry-run"),
        reset(group, "--to-earliest"),
        groups("--delete-offsets", "--group", group, "--topic", "cg.events"),
        groups("--delete-offsets", "--group", group, "--topic", "cg.orders:1"),
        groups("--delete-offsets", "--group", group, "--topic", "cg.orders:7"),
        groups("--delete-offsets", "--group", group, "--topic", "cg.none"),
        described(group),
        groups("--delete", "--group", group, "--group", "cg-none"),
        groups("--delete", "--group", group),
        described(group),
        described(group, "--members"),
        described(group, "--state"),
        listed(),
    ]


NEW_GROUP = [
    described("cg-new"),
    reset("cg-new", "--topic", "cg.events", "--to-offset", "2", "--execute"),
    described("cg-new"),
    described("cg-new", "--state"),
    listed("--state"),
    groups("--delete-offsets", "--group", "cg-none", "--topic", "cg.events"),
    groups("--delete", "--group", "cg-new"),
]


def group_configs(group: str, *arguments: str, until: str | None = None) -> Step:
    return Step(CONFIGS, (*AT, "--entity-type", "groups", "--entity-name", group, *arguments), until=until)


GROUP_CONFIGS = [
    group_configs("cg-conf", "--describe"),
    group_configs("cg-conf", "--alter", "--add-config", "consumer.session.timeout.ms=50000"),
    group_configs("cg-conf", "--describe", until="50000"),
    group_configs("cg-conf", "--alter", "--add-config", "consumer.heartbeat.interval.ms=6000"),
    group_configs("cg-conf", "--describe", until="6000"),
    group_configs("cg-conf", "--describe", "--all"),
    group_configs("cg-conf", "--alter", "--add-config", "consumer.session.timeout.ms=1"),
    group_configs("cg-conf", "--alter", "--add-config", "consumer.session.timeout.ms=soon"),
    group_configs("cg-conf", "--alter", "--add-config", "consumer.session.timeout.ms=5000000"),
    group_configs("cg-conf", "--alter", "--add-config", "no.such.setting=1"),
    group_configs("cg-conf", "--alter", "--delete-config", "consumer.session.timeout.ms"),
    group_configs("cg-conf", "--describe", until=r"groups 'cg-conf' are|consumer.heartbeat.interval.ms=6000 "),
]


INTERNAL_TOPIC = [
    Step(TOPIC_COMMAND, (*AT, "--describe", "--topic", "__consumer_offsets"), until="PartitionCount: 1"),
    Step(TOPIC_COMMAND, (*AT, "--list", "--topic", "(__consumer_offsets|cg\\.events)")),
    Step(TOPIC_COMMAND, (*AT, "--list", "--exclude-internal", "--topic", "(__consumer_offsets|cg\\.events)")),
    Step(CONFIGS, (*AT, "--describe", "--entity-type", "topics", "--entity-name", "__consumer_offsets")),
    Step(CONSOLE_PRODUCER, (*AT, "--topic", "__consumer_offsets", "--timeout", "0", "--sync"), stdin="no\n"),
    Step(DELETE_RECORDS, (*AT, "--offset-json-file", "{dir}/internal.json")),
]


def fill(server: Server) -> None:
    """The same records on every server; topics that are there already are left alone."""
    admin = KafkaAdminClient(bootstrap_servers=server.bootstrap)
    there = admin.list_topics()
    forever = {"retention.ms": "-1"}  # the records are years old
    missing = {
        name: {"num_partitions": count, "configs": forever} for name, count in TOPICS.items() if name not in there
    }
    if missing:
        admin.create_topics(missing, wait_for_metadata=True)
        producer = KafkaProducer(bootstrap_servers=server.bootstrap, acks="all")
        for topic, partitions in TOPICS.items():
            for number in range(PER_PARTITION * partitions):
                producer.send(
                    topic,
                    value=b"%d" % number,
                    partition=number % partitions,
                    timestamp_ms=FIRST_MS + (number // partitions) * HOUR_MS,
                ).get(10)
        producer.close()
    admin.close()


@contextmanager
def consuming(jvm: JavaGateway, server: Server, group: str, **settings: str) -> Iterator[JavaConsumer]:
    """A member that has read everything."""
    consumer = JavaConsumer(jvm, server.bootstrap, group, client_id="tool-client", **settings).subscribe(*TOPICS)
    total = PER_PARTITION * sum(TOPICS.values())
    try:
        wait_until(lambda: len(consumer.seen) >= total or consumer.failure is not None, 30, f"{group} reads all")
        yield consumer
    finally:
        consumer.close()


def compare(tools: StockTools, servers: Sequence[Server], steps: Sequence[Step], directory: Path) -> None:
    theirs, ours = (run_scenario(tools, server, steps, directory) for server in servers)
    assert ours.splitlines() == theirs.splitlines()


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_a_group_in_its_life(
    kind: str, stock_tools: StockTools, jvm: JavaGateway, anchor: AnchorKafka, broker: BrokerProcess, tmp_path: Path
) -> None:
    """Described while a member is there; then reset in every way, and deleted."""
    group = f"cg-{kind}"
    rows = [f"cg.orders,{partition},{partition + 1}" for partition in range(3)]
    (tmp_path / "offsets.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "beyond.csv").write_text("cg.orders,0,99\ncg.events,0,2\n")
    transcripts = []
    for server in (anchor, broker):
        fill(server)
        with consuming(jvm, server, group, group_protocol=kind):
            lines = run_scenario(stock_tools, server, active(group, kind), tmp_path)
        lines += "\n" + run_scenario(stock_tools, server, emptied(group), tmp_path)
        transcripts.append(lines.splitlines())
    theirs, ours = transcripts
    assert ours == theirs


SCENARIOS = {"new group": NEW_GROUP, "group configs": GROUP_CONFIGS, "internal topic": INTERNAL_TOPIC}


@pytest.mark.parametrize("name", SCENARIOS)
def test_same_output_as_apache_kafka(
    name: str, stock_tools: StockTools, anchor: AnchorKafka, broker: BrokerProcess, tmp_path: Path
) -> None:
    deletion = {"topic": "__consumer_offsets", "partition": 0, "offset": 1}
    (tmp_path / "internal.json").write_text(json.dumps({"partitions": [deletion], "version": 1}))
    for server in (anchor, broker):
        fill(server)
        with Talk(server.port) as talk:
            talk.find_coordinator("any")
    compare(stock_tools, (anchor, broker), SCENARIOS[name], tmp_path)
