"""Mirror: topics of this cluster to another one, with their keys, values, headers and timestamps.

The target's topics are named `<source>.<topic>`, so the name says where a record comes from and the record stays as it
is; topics that came from the target, on whatever way, are not sent back. With `keep_names` the names stay and a header
`barnabas.origin` says whence a record came; records of the target's own are not sent back. Either way two mirrors in
opposite directions (active-active) make no loop, and one alone is active-passive. Topics that the target does not have
are made with the source's number of partitions; records keep their partition. At least once, in order per key.
"""

from __future__ import annotations

import re

from pipeline.job import BYTES, Context, Job, Output, Setting, Topic, TopicSink

TARGET_SERVERS = Setting("target_bootstrap_servers", str, "localhost:9092", "the cluster to write to")
SOURCE = Setting("source", str, "source", "the name of the cluster that is read: the prefix of its topics")
TARGET = Setting(
    "target", str, "target", "the name of the cluster that is written to: what has it as prefix stays here"
)
KEEP_NAMES = Setting("keep_names", bool, False, "no prefix; a header says where records come from")

ORIGIN = "barnabas.origin"


def build(context: Context) -> list[Output]:
    from pyspark.sql import functions as F

    records = context.read("readings").where("NOT startswith(topic, '__')")
    source, target = F.lit(context[SOURCE]), context[TARGET]
    if context[KEEP_NAMES]:
        marks = F.filter(F.coalesce("headers", F.array()), lambda header: header["key"] == ORIGIN)
        mark = F.array(F.struct(F.lit(ORIGIN).alias("key"), source.cast("binary").alias("value")))
        unmarked = F.size(marks) == 0
        mirrored = (
            records.where(~F.exists(marks, lambda header: header["value"] == F.lit(target).cast("binary")))
            .withColumn(
                "headers",
                F.when(unmarked, F.concat(F.coalesce("headers", F.array()), mark)).otherwise(F.col("headers")),
            )
            .withColumn("target_topic", F.col("topic"))
        )
    else:
        came_from_target = F.col("topic").rlike(rf"^([^.]+\.)*{re.escape(target)}\.")
        mirrored = records.where(~came_from_target).withColumn("target_topic", F.concat_ws(".", source, "topic"))
    sink = TopicSink(
        "mirrored",
        key="key",
        value="value",
        headers="headers",
        timestamp="timestamp",
        topic_column="target_topic",
        like="topic",
        partition="partition",
        bootstrap_servers=context[TARGET_SERVERS],
    )
    return [Output("mirror", mirrored, sink)]


JOB = Job(
    name="mirror",
    build=build,
    reads=[Topic("readings", BYTES, "the topics to mirror, a regular expression", key="bytes", pattern=True)],
    settings=[TARGET_SERVERS, SOURCE, TARGET, KEEP_NAMES],
)
