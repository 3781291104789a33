"""Logs and metrics: rates and error budgets per service from log lines, percentiles from samples of metrics.

`service_rates` has lines and errors per service and window, `error_budgets` how much of its budget a service has left
since the first line (1: all, 0: none, below: overspent), `percentiles` the 50th, 95th and 99th of every metric per
service and window, exact up to ten thousand samples and within one rank in ten thousand beyond. Lines and samples carry
no identity: one that was sent twice counts twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.job import TEXT, Context, Job, Output, Setting, TableSink, Topic
from pipeline.jobs._columns import events, text_time

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WINDOW = Setting("window", str, "1 minute", "the length of a window")
SLO = Setting("slo", float, 0.99, "the share of log lines that may be expected not to be errors")

METRIC = "service STRING NOT NULL, metric STRING NOT NULL, value BIGINT NOT NULL, at TIMESTAMP NOT NULL"
LINE = "([^ ]+) (DEBUG|INFO|WARN|ERROR) ([^ ]+) (.*)"
WELL_FORMED_LINE = f"value RLIKE '^{LINE}$' AND try_cast(substring_index(value, ' ', 1) AS TIMESTAMP) IS NOT NULL"

PERCENTILES = (50, 95, 99)
ACCURACY = 10_000


def build(context: Context) -> list[Output]:
    from pyspark.sql import functions as F

    def part(group: int) -> Column:
        return F.regexp_extract("value", LINE, group)

    lines = context.read("logs").select(
        part(1).try_cast("timestamp").alias("at"), part(2).alias("level"), part(3).alias("service")
    )
    samples = events(context, "metrics")
    window = context[WINDOW]
    return [
        Output(
            "rates",
            rates(context.watermark(lines, "at"), window),
            TableSink("service_rates", keys=("service", "window_start")),
            mode="update",
        ),
        Output(
            "budgets",
            error_budgets(lines, context[SLO]),
            TableSink("error_budgets", keys=("service",)),
            mode="update",
        ),
        Output(
            "percentiles",
            percentiles(samples, window),
            TableSink("percentiles", keys=("service", "metric", "window_start")),
            mode="update",
        ),
    ]


def rates(lines: DataFrame, window: str) -> DataFrame:
    from pyspark.sql import functions as F

    seconds = F.unix_timestamp("window.end") - F.unix_timestamp("window.start")
    return (
        lines.groupBy("service", F.window("at", window))
        .agg(F.count("*").alias("lines"), F.count_if(F.col("level") == "ERROR").alias("errors"))
        .withColumn("lines_per_s", F.col("lines") / seconds)
        .withColumn("error_share", F.col("errors") / F.col("lines"))
        .withColumn("window_start", text_time(F.col("window.start")))
        .drop("window")
    )


def error_budgets(lines: DataFrame, slo: float) -> DataFrame:
    from pyspark.sql import functions as F

    counts = lines.groupBy("service").agg(
        F.count("*").alias("lines"), F.count_if(F.col("level") == "ERROR").alias("errors")
    )
    budget = F.col("lines") * F.lit(1 - slo)
    return counts.withColumn("budget", budget).withColumn("left", 1 - F.try_divide("errors", "budget"))


def percentiles(samples: DataFrame, window: str) -> DataFrame:
    from pyspark.sql import functions as F

    found = F.percentile_approx("value", [percent / 100 for percent in PERCENTILES], ACCURACY).alias("found")
    named = [F.col("found")[index].alias(f"p{percent}") for index, percent in enumerate(PERCENTILES)]
    return (
        samples.groupBy("service", "metric", F.window("at", window))
        .agg(F.count("*").alias("samples"), found)
        .select("service", "metric", text_time(F.col("window.start")).alias("window_start"), "samples", *named)
    )


JOB = Job(
    name="logs-and-metrics",
    build=build,
    reads=[
        Topic("logs", TEXT, "lines as `<time> <level> <service> <message>`", check=WELL_FORMED_LINE),
        Topic("metrics", METRIC, "samples of metrics, keyed by service"),
    ],
    settings=[WINDOW, SLO],
)
