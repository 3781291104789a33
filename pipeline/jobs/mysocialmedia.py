"""MySocialMedia: totals per post and what is trending, as the read model of a CQRS application.

Users' commands are events of three topics; nobody queries those. This job keeps two tables that answer queries:
`post_totals` by post and `trending` by window and rank. A user likes a post once, a comment counts once. A post that
has been liked before it was seen has no author yet. In a window a comment weighs as much as two likes, and of two posts
with the same score the one whose name sorts first ranks higher.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.job import Context, Job, Output, Setting, TableSink, Topic
from pipeline.jobs._columns import distinct_count, events, text_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WINDOW = Setting("window", str, "5 minutes", "the window in which posts compete")
TOP = Setting("top", int, 5, "how many posts are trending in a window")

POST = "post STRING NOT NULL, user STRING NOT NULL, text STRING NOT NULL, at TIMESTAMP NOT NULL"
LIKE = "post STRING NOT NULL, user STRING NOT NULL, at TIMESTAMP NOT NULL"
COMMENT = f"comment STRING NOT NULL, {POST}"


def build(context: Context) -> list[Output]:
    from pyspark.sql import functions as F

    def activity(topic: str, who: str, author: str, text: str) -> DataFrame:
        columns = (F.lit(topic).alias("kind"), F.expr(who).alias("who"))
        return events(context, topic).select(
            "post", "at", *columns, F.expr(author).alias("author"), F.expr(text).alias("text")
        )

    nothing = "CAST(NULL AS STRING)"
    activities = (
        activity("posts", "user", author="user", text="text")
        .unionByName(activity("likes", "user", author=nothing, text=nothing))
        .unionByName(activity("comments", "comment", author=nothing, text=nothing))
    )
    return [
        Output("totals", totals(activities), TableSink("post_totals", keys=("post",)), mode="update"),
        Output(
            "trending",
            trending(activities, context[WINDOW], context[TOP]),
            TableSink("trending", keys=("window_start", "rank")),
            mode="update",
        ),
    ]


def totals(activities: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return activities.groupBy("post").agg(
        F.max("author").alias("author"),
        F.max("text").alias("text"),
        distinct_count(F.when(F.col("kind") == "likes", F.col("who"))).alias("likes"),
        distinct_count(F.when(F.col("kind") == "comments", F.col("who"))).alias("comments"),
    )


def trending(activities: DataFrame, window: str, top: int) -> DataFrame:
    """Ranks within a window are computed in its one row of state: a rank, once taken, is only ever retaken."""
    from pyspark.sql import functions as F

    reactions = (
        activities.where("kind != 'posts'")
        .groupBy(F.window("at", window))
        .agg(F.collect_set(F.struct("post", "kind", "who")).alias("reactions"))
    )
    ranking = F.expr(
        """sort_array(transform(array_distinct(reactions.post), p -> struct(
               -aggregate(filter(reactions, r -> r.post = p), 0L,
                          (score, r) -> score + IF(r.kind = 'likes', 1, 2)) AS minus,
               p AS post)))"""
    )
    return reactions.select(
        text_time(F.col("window.start")).alias("window_start"), F.posexplode(F.slice(ranking, 1, top))
    ).selectExpr("window_start", "CAST(pos + 1 AS BIGINT) AS rank", "col.post AS post", "-col.minus AS score")


JOB = Job(
    name="mysocialmedia",
    build=build,
    reads=[
        Topic("posts", POST, "what users post, keyed by post"),
        Topic("likes", LIKE, "who likes which post, keyed by post"),
        Topic("comments", COMMENT, "comments on posts, keyed by post"),
    ],
    settings=[WINDOW, TOP],
)
