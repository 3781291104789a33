"""Numbers: every number once in Parquet files, and how many there are per bucket in a keyed table.

A user's own job, given by its path; its results promise exactly-once, so after any crash they must be exactly right.
"""

from __future__ import annotations

from pipeline.job import Context, Job, Output, ParquetSink, TableSink, Topic


def build(context: Context) -> list[Output]:
    from pyspark.sql import functions as F

    numbers = context.read("numbers").select("value.number", (F.col("value.number") % 7).alias("bucket"))
    buckets = numbers.groupBy("bucket").agg(F.count("*").alias("count"), F.sum("number").alias("total"))
    return [
        Output("files", numbers, ParquetSink("numbers", partition_by=("bucket",))),
        Output("buckets", buckets, TableSink("buckets", keys=("bucket",)), mode="update"),
        Output("snapshot", buckets, TableSink("snapshot", keys=("bucket",)), mode="complete"),
    ]


JOB = Job(
    name="numbers",
    build=build,
    reads=[Topic("numbers", "number BIGINT NOT NULL", "numbers, each sent once", partitions=2)],
)
