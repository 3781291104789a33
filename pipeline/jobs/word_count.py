"""Word count: how often each word occurred in the lines of a topic.

Kafka Streams' classic example. Lines are split at anything that is no letter or digit, words are counted without
regard to case, and each count that changed goes to the topic of counts, keyed by its word: the last record of a key
is the count. The same counts are kept in the keyed table `word_counts`.
"""

from __future__ import annotations

from pipeline.job import TEXT, Context, Job, Output, Setting, TableSink, Topic, TopicSink

MIN_LENGTH = Setting("min_length", int, 1, "shorter words are not counted")


def build(context: Context) -> list[Output]:
    from pyspark.sql import functions as F

    words = context.read("lines").select(F.explode(F.split(F.lower("value"), r"[^\p{L}\p{N}]+")).alias("word"))
    counts = words.where(F.length("word") >= context[MIN_LENGTH]).groupBy("word").count()
    return [
        Output("counts", counts, TopicSink("word-counts", key="word", value=("word", "count")), mode="update"),
        Output("table", counts, TableSink("word_counts", keys=("word",)), mode="update"),
    ]


JOB = Job(
    name="word-count",
    build=build,
    reads=[Topic("lines", TEXT, "lines of text")],
    writes=[Topic("word-counts", "word STRING NOT NULL, count BIGINT NOT NULL", "the count of a word, keyed by it")],
    settings=[MIN_LENGTH],
)
