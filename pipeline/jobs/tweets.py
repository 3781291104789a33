"""Tweets: those with more than ten likes or replies, and the number of tweets per hashtag per minute.

A tweet that its producer sent twice appears once among the popular ones and counts once for its hashtags. Hashtags are
compared without regard to case. Counts go to a topic keyed by hashtag and minute: the last record of a key is the
count, and it still changes while late tweets arrive within the watermark.
"""

from __future__ import annotations

from pipeline.job import Context, Job, Output, Setting, Topic, TopicSink
from pipeline.jobs._columns import distinct_count, events, text_time

MORE_THAN = Setting("more_than", int, 10, "a tweet is popular with more than this many likes, or replies")

TWEET = (
    "id STRING NOT NULL, user STRING NOT NULL, text STRING NOT NULL, likes BIGINT NOT NULL, replies BIGINT NOT NULL, "
    "at TIMESTAMP NOT NULL"
)
COUNT = "hashtag STRING NOT NULL, minute STRING NOT NULL, tweets BIGINT NOT NULL"


def build(context: Context) -> list[Output]:
    from pyspark.sql import functions as F

    tweets = events(context, "tweets")
    enough = (F.col("likes") > context[MORE_THAN]) | (F.col("replies") > context[MORE_THAN])
    popular = tweets.where(enough).dropDuplicatesWithinWatermark(["id"])

    hashtags = F.regexp_extract_all(F.lower("text"), F.lit(r"#([\p{L}\p{N}_]+)"))
    per_minute = (
        tweets.select("id", "at", F.explode(hashtags).alias("hashtag"))
        .groupBy("hashtag", F.window("at", "1 minute"))
        .agg(distinct_count(F.col("id")).alias("tweets"))
        .select("hashtag", text_time(F.col("window.start")).alias("minute"), "tweets")
        .withColumn("key", F.concat_ws("|", "hashtag", "minute"))
    )
    fields = ("id", "user", "text", "likes", "replies", "at")
    return [
        Output("popular", popular, TopicSink("popular-tweets", key="id", value=fields)),
        Output(
            "hashtags",
            per_minute,
            TopicSink("hashtags-per-minute", key="key", value=("hashtag", "minute", "tweets")),
            mode="update",
        ),
    ]


JOB = Job(
    name="tweets",
    build=build,
    reads=[Topic("tweets", TWEET, "tweets, keyed by user")],
    writes=[
        Topic("popular-tweets", TWEET, "tweets with many likes or replies, keyed by id"),
        Topic("hashtags-per-minute", COUNT, "tweets per hashtag and minute, keyed by both"),
    ],
    settings=[MORE_THAN],
)
