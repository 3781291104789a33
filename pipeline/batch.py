"""A stretch of a topic as a plain DataFrame: between offsets or times, parsed like a job's input, ready for SQL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from pipeline.job import BYTES, Topic
from pipeline.topics import parse, well_formed
from pipeline.wire import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Position = Literal["earliest", "latest"] | Mapping[int, int] | datetime
"""An end of the log, an offset per partition (others: from the beginning, to the end), or a time."""

_EARLIEST, _LATEST = -2, -1  # the connector's numbers for the ends of a partition


def read_between(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str | Topic,
    start: Position = "earliest",
    end: Position = "latest",
) -> DataFrame:
    """Records from `start` up to but without `end`, with the columns of `Context.read`.

    A plain topic name is read as bytes. Malformed rows of a declared topic are left out here: `parse` of
    `pipeline.topics` shows them. A start later than every record gives no rows; an end later than every record, all.
    """
    declared = Topic(topic, BYTES, "read as it is", key="bytes") if isinstance(topic, str) else topic
    cluster = Cluster(bootstrap_servers)
    try:
        count = cluster.patiently(lambda: cluster.partitions(declared.name))
    finally:
        cluster.close()
    reader = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", declared.name)
        .option("includeHeaders", "true")
        .option("startingOffsetsByTimestampStrategy", "latest")
        .options(**_options("starting", start, declared.name, count, _EARLIEST))
        .options(**_options("ending", end, declared.name, count, _LATEST))
    )
    return well_formed(parse(reader.load(), declared))


def _options(which: str, position: Position, topic: str, partitions: int, otherwise: int) -> dict[str, str]:
    if isinstance(position, str):
        return {f"{which}Offsets": position}
    if isinstance(position, datetime):
        return {f"{which}Timestamp": str(int(position.timestamp() * 1000))}
    offsets = {str(number): position.get(number, otherwise) for number in range(partitions)}
    return {f"{which}Offsets": json.dumps({topic: offsets})}
