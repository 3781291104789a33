"""GetTaxi: the surge price of each region and window, from the positions of taxis and of people who look for one.

A region is a square of the grid of coordinates, a window a minute. The price is the number of people per taxi in per
cent, at least 100 and at most the ceiling; where there are people and no taxi it is the ceiling. Taxis and people are
counted once per window however often they report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.job import Context, Job, Output, Setting, Topic, TopicSink
from pipeline.jobs._columns import distinct_count, events, text_time

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WINDOW = Setting("window", str, "1 minute", "the length of a window")
CELLS = Setting("cells_per_degree", int, 100, "regions per degree: at 100 a square has sides of about a kilometre")
CEILING = Setting("ceiling_percent", int, 300, "no price is above this")

POSITION = "id STRING NOT NULL, lat DOUBLE NOT NULL, lon DOUBLE NOT NULL, at TIMESTAMP NOT NULL"
ON_EARTH = "value.lat BETWEEN -90 AND 90 AND value.lon BETWEEN -180 AND 180"
PRICE = (
    "region STRING NOT NULL, window_start STRING NOT NULL, users BIGINT NOT NULL, taxis BIGINT NOT NULL, "
    "price_percent BIGINT NOT NULL"
)


def build(context: Context) -> list[Output]:
    from pyspark.sql import functions as F

    def of_kind(topic: str, kind: str) -> DataFrame:
        return events(context, topic).withColumn("kind", F.lit(kind))

    def count(kind: str) -> Column:
        return distinct_count(F.when(F.col("kind") == kind, F.col("id")))

    positions = of_kind("taxi-positions", "taxi").unionByName(of_kind("user-positions", "user"))
    cell = [F.floor(F.col(axis) * context[CELLS]) for axis in ("lat", "lon")]
    users_per_taxi = F.when(F.col("taxis") > 0, F.expr("users * 100 DIV greatest(taxis, 1)"))
    price = (
        F.when(F.col("users") == 0, F.lit(100))
        .when(F.col("taxis") == 0, F.lit(context[CEILING]))
        .otherwise(F.least(F.lit(context[CEILING]), F.greatest(F.lit(100), users_per_taxi)))
        .cast("long")
    )
    prices = (
        positions.groupBy(F.concat_ws(":", *cell).alias("region"), F.window("at", context[WINDOW]))
        .agg(count("user").alias("users"), count("taxi").alias("taxis"))
        .select("region", text_time(F.col("window.start")).alias("window_start"), "users", "taxis")
        .withColumn("price_percent", price)
        .withColumn("key", F.concat_ws("|", "region", "window_start"))
    )
    fields = ("region", "window_start", "users", "taxis", "price_percent")
    return [Output("surge", prices, TopicSink("surge-prices", key="key", value=fields), mode="update")]


JOB = Job(
    name="gettaxi",
    build=build,
    reads=[
        Topic("taxi-positions", POSITION, "where taxis are", check=ON_EARTH),
        Topic("user-positions", POSITION, "where people look for one", check=ON_EARTH),
    ],
    writes=[Topic("surge-prices", PRICE, "the price of a region in a window, keyed by both")],
    settings=[WINDOW, CELLS, CEILING],
)
