"""A few stock tools as true processes, and the versions that Barnabas claims.

The scenarios run the tools inside one JVM; these runs prove the same end to end, the way a user starts the tools.
"""

from __future__ import annotations

import re

import pytest
from support.anchor import AnchorKafka
from support.broker_process import BrokerProcess
from support.tools import API_VERSIONS, CONSOLE_CONSUMER, CONSOLE_PRODUCER, TOPICS, StockTools, run_process

pytestmark = pytest.mark.stock

# The APIs that a single node serves; later capabilities add to them.
SERVED = {
    "Produce", "Fetch", "ListOffsets", "Metadata", "ApiVersions", "CreateTopics", "DeleteTopics",
    "CreatePartitions", "DeleteRecords", "DescribeTopicPartitions", "DescribeConfigs", "IncrementalAlterConfigs",
    "AlterConfigs", "ListConfigResources", "InitProducerId", "OffsetForLeaderEpoch", "DescribeCluster",
    "DescribeLogDirs", "DescribeProducers", "DescribeQuorum", "FindCoordinator",
    "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch", "OffsetDelete",
    "DescribeGroups", "ListGroups", "DeleteGroups", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe",
}  # fmt: skip

_API_LINE = re.compile(r"^\t(\w+)\(\d+\): (\d+(?: to \d+)?) \[usable: (\d+)\]", re.MULTILINE)


def api_versions(tools: StockTools, bootstrap: str) -> dict[str, tuple[str, str]]:
    result = tools.run(API_VERSIONS, "--bootstrap-server", bootstrap)
    assert result.code == 0, result
    return {name: (versions, usable) for name, versions, usable in _API_LINE.findall(result.out)}


def test_served_apis_have_the_versions_of_apache_kafka(
    stock_tools: StockTools, anchor: AnchorKafka, broker: BrokerProcess
) -> None:
    theirs = api_versions(stock_tools, anchor.bootstrap)
    ours = api_versions(stock_tools, broker.bootstrap)
    assert set(ours) >= SERVED
    assert ours == {name: theirs[name] for name in ours}


def test_console_round_trip_as_processes(broker: BrokerProcess) -> None:
    at = ("--bootstrap-server", broker.bootstrap)
    created = run_process(TOPICS, *at, "--create", "--topic", "processes")
    assert (created.code, created.out, created.err) == (0, "Created topic processes.\n", "")

    keyed = ("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")
    produced = run_process(
        *(CONSOLE_PRODUCER, *at, "--topic", "processes", *keyed), stdin="h:1\tkey\tfirst\nh:2\tkey\tsecond\n"
    )
    assert (produced.code, produced.err) == (0, "")

    consumed = run_process(
        *(CONSOLE_CONSUMER, *at, "--topic", "processes", "--partition", "0", "--offset", "earliest"),
        *("--max-messages", "2", "--formatter-property", "print.key=true"),
        *("--formatter-property", "print.headers=true", "--timeout-ms", "30000"),
    )
    assert consumed.code == 0
    assert consumed.out == "h:1\tkey\tfirst\nh:2\tkey\tsecond\n"
    assert consumed.err == "Processed a total of 2 messages\n"
