"""MovieFlix: where each user left each show, what to watch next, and every position for the analysts.

The resume point of a user and show is the position with the latest event time; an earlier one that arrives late does
not move it. Recommendations are, per genre a user has watched, the shows with the most viewers that this user has not
seen; one genre's viewers are one row of state. The analytics store is Parquet by day, each position once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.job import Context, Job, Output, ParquetSink, Setting, TableSink, Topic, TopicSink
from pipeline.jobs._columns import events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOP = Setting("top", int, 3, "at most this many shows are recommended per user and genre")

POSITION = (
    "user STRING NOT NULL, show STRING NOT NULL, genre STRING NOT NULL, position_s BIGINT NOT NULL, "
    "at TIMESTAMP NOT NULL"
)
RESUME = "user STRING NOT NULL, show STRING NOT NULL, position_s BIGINT NOT NULL, at TIMESTAMP NOT NULL"


def build(context: Context) -> list[Output]:
    from pyspark.sql import functions as F

    positions = events(context, "show-positions")
    seen_once = positions.dropDuplicatesWithinWatermark(["user", "show", "at"])
    return [
        Output(
            "resume-points",
            resume_points(positions),
            TopicSink("resume-points", key="key", value=("user", "show", "position_s", "at")),
            mode="update",
        ),
        Output(
            "recommendations",
            recommendations(positions, context[TOP]),
            TableSink("recommendations", keys=("user", "genre")),
            mode="update",
        ),
        Output("analytics", seen_once.withColumn("date", F.to_date("at")), ParquetSink("positions", ["date"])),
    ]


def resume_points(positions: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    latest = F.max(F.struct("at", "position_s")).alias("latest")  # of two at the same moment, the later position
    return (
        positions.groupBy("user", "show")
        .agg(latest)
        .select(F.concat_ws("|", "user", "show").alias("key"), "user", "show", "latest.position_s", "latest.at")
    )


def recommendations(positions: DataFrame, top: int) -> DataFrame:
    """One row per user and genre, with the shows as text: a list that shrinks must replace the longer one."""
    from pyspark.sql import functions as F

    views = positions.groupBy("genre").agg(F.collect_set(F.struct("show", "user")).alias("views"))
    ranked = views.withColumn(
        "ranking",
        F.expr(
            """sort_array(transform(array_distinct(views.show),
                   s -> struct(-size(filter(views, v -> v.show = s)) AS fewest_first, s AS show)))"""
        ),
    )
    per_user = ranked.withColumn("user", F.explode(F.array_distinct("views.user")))
    unseen = F.expr("array_except(ranking.show, transform(filter(views, v -> v.user = user), v -> v.show))")
    return per_user.select("user", "genre", F.array_join(F.slice(unseen, 1, top), ",").alias("shows"))


JOB = Job(
    name="movieflix",
    build=build,
    reads=[Topic("show-positions", POSITION, "where a user is in a show, keyed by user")],
    writes=[Topic("resume-points", RESUME, "where to resume, keyed by user and show")],
    settings=[TOP],
)
