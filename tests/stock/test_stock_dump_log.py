"""Apache Kafka reads every file that Barnabas wrote, with no complaint."""

from __future__ import annotations

import pytest
from py4j.java_gateway import JavaGateway
from support.broker_process import BrokerProcess
from support.data_directory import DataDirectoryReader
from support.tools import StockTools
from support.workload import varied_workload

pytestmark = pytest.mark.stock


def test_kafka_reads_every_file_of_a_stopped_broker(
    fresh_broker: BrokerProcess, stock_tools: StockTools, jvm: JavaGateway
) -> None:
    varied_workload(fresh_broker.bootstrap)
    fresh_broker.stop()

    reader = DataDirectoryReader(stock_tools, jvm, fresh_broker.data_dir)
    reader.read_all()

    assert reader.files["log"] >= 10 + 10 + 6, "at least two segments in every codec's partition"
    assert reader.files["snapshot"] > 0, "a clean stop and every roll leave producer snapshots"
    assert reader.files[".kafka_cleanshutdown"] == 1
    assert reader.files["quorum-state"] == 1
    assert reader.files["meta.properties"] == 1
    for kind in ("index", "timeindex", "leader-epoch-checkpoint", "partition.metadata"):
        assert reader.files[kind] > 0, kind
    for record in ("TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD", "REMOVE_TOPIC_RECORD", "FEATURE_LEVEL_RECORD"):
        assert reader.metadata_records[record] > 0, record
