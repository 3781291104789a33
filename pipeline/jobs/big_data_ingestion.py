"""Big-data ingestion: any topics to partitioned Parquet, while a speed layer answers from the same stream.

The batch layer keeps every record as it came (key, value and headers are bytes, so nothing can be malformed), exactly
once, in Parquet by topic and day. The speed layer keeps the number of records and bytes per topic and minute in a
table. `records_per_minute` answers from both: from the Parquet files up to a moment, from the table after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.job import BYTES, Context, Job, Output, ParquetSink, TableSink, Topic
from pipeline.jobs._columns import text_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(context: Context) -> list[Output]:
    from pyspark.sql import functions as F

    records = context.read("readings")
    return [
        Output(
            "batch-layer",
            records.withColumn("date", F.to_date("timestamp")),
            ParquetSink("records", partition_by=["topic", "date"]),
        ),
        Output(
            "speed-layer",
            per_minute(context.watermark(records)),
            TableSink("records_per_minute", keys=("topic", "minute")),
            mode="update",
        ),
    ]


def per_minute(records: DataFrame) -> DataFrame:
    """Records and bytes of values per topic and minute: of a stream, or of the Parquet files."""
    from pyspark.sql import functions as F

    return (
        records.groupBy("topic", F.window("timestamp", "1 minute"))
        .agg(F.count("*").alias("records"), F.coalesce(F.sum(F.octet_length("value")), F.lit(0)).alias("bytes"))
        .select("topic", text_time(F.col("window.start")).alias("minute"), "records", "bytes")
    )


def records_per_minute(batch_layer: DataFrame, speed_layer: DataFrame, until: str) -> DataFrame:
    """The answer: minutes before `until` counted from the batch layer, the later ones as the speed layer has them."""
    return per_minute(batch_layer).where(f"minute < '{until}'").unionByName(speed_layer.where(f"minute >= '{until}'"))


JOB = Job(
    name="big-data-ingestion",
    build=build,
    reads=[
        Topic("readings", BYTES, "the topics to keep, a regular expression", key="bytes", pattern=True),
    ],
)
