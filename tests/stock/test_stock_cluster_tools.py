"""The stock tools that administer a cluster, on one node: features, reassignments, elections, broker settings.

As in test_stock_tools: the same calls on both servers, the same exit codes and texts. What a scenario changes it also
puts back, because the servers are shared.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.anchor import AnchorKafka
from support.broker_process import BrokerProcess
from support.scenario import Step, run_scenario, without_numbers
from support.tools import CLUSTER, CONFIGS, FEATURES, LEADER_ELECTION, REASSIGN, TOPICS, StockTools

pytestmark = pytest.mark.stock

AT = ("--bootstrap-server", "{bootstrap}")


def created(topic: str, partitions: int = 1) -> list[Step]:
    return [
        Step(TOPICS, (*AT, "--create", "--topic", topic, "--partitions", str(partitions))),
        Step(TOPICS, (*AT, "--describe", "--topic", topic), until=f"PartitionCount: {partitions}\t"),
    ]


def features(*arguments: str, until: str | None = None) -> Step:
    return Step(FEATURES, (*AT, *arguments), until=until, shape=_without_epochs)


def _without_epochs(text: str) -> str:
    """The epoch of the finalized features is an offset of the metadata log."""
    return "\n".join(line.split("Epoch:")[0].rstrip() for line in text.splitlines())


FEATURE_STEPS = [
    features("describe"),
    features("upgrade", "--feature", "transaction.version=2"),
    features("downgrade", "--feature", "transaction.version=1"),
    features("describe", until=r"transaction\.version.*FinalizedVersionLevel: 1\b"),
    features("downgrade", "--feature", "transaction.version=2"),
    features("upgrade", "--feature", "transaction.version=2", "--dry-run"),
    features("upgrade", "--feature", "transaction.version=2"),
    features("describe", until=r"transaction\.version.*FinalizedVersionLevel: 2\b"),
    features("upgrade", "--feature", "transaction.version=1"),
    features("upgrade", "--feature", "transaction.version=9"),
    features("upgrade", "--feature", "wings=1"),
    features("downgrade", "--feature", "metadata.version=29"),
    features("downgrade", "--feature", "metadata.version=29", "--unsafe"),
    features("downgrade", "--feature", "metadata.version=3"),
    features("upgrade", "--release-version", "4.3-IV0"),
    features("upgrade", "--metadata", "4.3-IV0"),
    features("upgrade", "--feature", "metadata.version=31"),
    features("downgrade", "--feature", "kraft.version=0"),
    features("upgrade", "--feature", "kraft.version=1"),
    features("disable", "--feature", "share.version"),
    features("describe", until=r"share\.version.*FinalizedVersionLevel: 0\b"),
    features("upgrade", "--feature", "share.version=1"),
    features("describe", until=r"share\.version.*FinalizedVersionLevel: 1\b"),
    features("disable", "--feature", "metadata.version"),
]

PLANS = {
    "same.json": [("moving.a", 0, [1]), ("moving.a", 1, [1])],
    "stranger.json": [("moving.a", 0, [7])],
    "twice.json": [("moving.a", 0, [1, 1])],
    "unknown.json": [("moving.none", 0, [1])],
    "partition.json": [("moving.a", 9, [1])],
}


def reassign(*arguments: str) -> Step:
    return Step(REASSIGN, (*AT, *arguments))


def plan(name: str, action: str, *more: str) -> Step:
    return reassign(f"--{action}", "--reassignment-json-file", f"{{dir}}/{name}", *more)


REASSIGNMENTS = [
    *created("moving.a", 2),
    reassign("--list"),
    plan("same.json", "verify"),
    plan("same.json", "execute"),
    plan("same.json", "verify"),
    plan("same.json", "execute", "--throttle", "100000"),
    plan("same.json", "verify"),
    Step(CONFIGS, (*AT, "--describe", "--entity-type", "topics", "--entity-name", "moving.a")),
    plan("same.json", "execute", "--disallow-replication-factor-change"),
    plan("same.json", "cancel"),
    plan("stranger.json", "execute"),
    plan("twice.json", "execute"),
    plan("unknown.json", "execute"),
    plan("unknown.json", "verify"),
    plan("partition.json", "execute"),
    reassign("--generate", "--topics-to-move-json-file", "{dir}/topics.json", "--broker-list", "1"),
    reassign("--generate", "--topics-to-move-json-file", "{dir}/topics.json", "--broker-list", "1,8"),
    reassign("--list"),
]


def elect(*arguments: str) -> Step:
    return Step(LEADER_ELECTION, (*AT, *arguments))


ELECTIONS = [
    *created("elected.a", 2),
    elect("--election-type", "preferred", "--topic", "elected.a", "--partition", "0"),
    elect("--election-type", "unclean", "--topic", "elected.a", "--partition", "1"),
    elect("--election-type", "preferred", "--all-topic-partitions"),
    elect("--election-type", "preferred", "--path-to-json-file", "{dir}/elections.json"),
    elect("--election-type", "preferred", "--topic", "elected.none", "--partition", "0"),
    elect("--election-type", "unclean", "--topic", "elected.a", "--partition", "7"),
]


def settings(*arguments: str, name: str | None = "1", until: str | None = None) -> Step:
    who = ("--entity-default",) if name is None else ("--entity-name", name)
    return Step(CONFIGS, (*AT, "--entity-type", "brokers", *who, *arguments), until=until)


BROKER_SETTINGS = [
    settings("--describe"),
    settings("--describe", name=None),
    settings("--alter", "--add-config", "log.cleaner.threads=2,message.max.bytes=2000000", name=None),
    settings("--describe", name=None, until="log.cleaner.threads=2"),
    settings("--alter", "--add-config", "log.cleaner.threads=1"),
    settings("--describe", until="log.cleaner.threads=1"),
    settings("--alter", "--delete-config", "log.cleaner.threads"),
    settings("--describe", until=r"are:\s*$"),
    settings("--alter", "--delete-config", "log.cleaner.threads,message.max.bytes", name=None),
    settings("--describe", name=None, until=r"are:\s*min\.insync\.replicas=\d+ [^\n]*\s*$"),
    settings("--alter", "--add-config", "log.dirs=/tmp/x"),
    settings("--alter", "--add-config", "node.id=4"),
    settings("--alter", "--add-config", "num.partitions=4"),
    settings("--alter", "--add-config", "process.roles=broker", name=None),
    settings("--alter", "--add-config", "log.cleaner.threads=many"),
    settings("--alter", "--add-config", "log.cleaner.threads=-1"),
    settings("--alter", "--add-config", "log.cleaner.threads=9"),
    settings("--alter", "--add-config", "num.io.threads=100"),
    settings("--alter", "--add-config", "num.network.threads=1", name=None),
    settings("--alter", "--add-config", "log.retention.ms=-7", name=None),
    settings("--alter", "--add-config", "advertised.listeners=PLAINTEXT://h:1", name=None),
    settings("--alter", "--add-config", "max.connections.per.ip=-1"),
    settings("--alter", "--delete-config", "no.such.setting"),
    settings("--alter", "--add-config", "min.insync.replicas=1"),
    settings("--alter", "--delete-config", "min.insync.replicas", name=None),
    settings("--alter", "--add-config", "log.retention.ms=5000", name="x"),
    settings("--describe", name="8"),
]

CLUSTER_STEPS = [
    Step(CLUSTER, ("unregister", *AT, "--id", "8")),
    Step(CLUSTER, ("list-endpoints", *AT, "--include-fenced-brokers"), shape=without_numbers),
]

SCENARIOS = {
    "features": FEATURE_STEPS,
    "reassignments": REASSIGNMENTS,
    "elections": ELECTIONS,
    "broker-settings": BROKER_SETTINGS,
    "cluster": CLUSTER_STEPS,
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_same_output_as_apache_kafka(
    name: str, stock_tools: StockTools, anchor: AnchorKafka, broker: BrokerProcess, tmp_path: Path
) -> None:
    for file, moves in PLANS.items():
        partitions = [{"topic": topic, "partition": index, "replicas": replicas} for topic, index, replicas in moves]
        (tmp_path / file).write_text(json.dumps({"version": 1, "partitions": partitions}))
    (tmp_path / "topics.json").write_text(json.dumps({"version": 1, "topics": [{"topic": "moving.a"}]}))
    elections = {"partitions": [{"topic": "elected.a", "partition": index} for index in (0, 1)]}
    (tmp_path / "elections.json").write_text(json.dumps(elections))
    theirs = run_scenario(stock_tools, anchor, SCENARIOS[name], tmp_path)
    ours = run_scenario(stock_tools, broker, SCENARIOS[name], tmp_path)
    assert ours.splitlines() == theirs.splitlines()
