"""Jobs over streams of events: each result equals a naive computation row by row, and what is malformed is all kept.

Most tests give a job its events in several micro-batches, so that state, late events and copies cross their borders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest
from naive import gettaxi, logs_and_metrics, movieflix, mybank, mysocialmedia, tweets, word_count
from naive.parsing import malformed
from support.spark import JobRun, Record

from pipeline import registry
from pipeline.errors import BadSetting
from pipeline.generators import Event

Runs = Callable[..., JobRun]
SEVERAL_BATCHES = {"watermark": "2 minutes", "max_offsets_per_trigger": "350"}


def same_records(letters: Iterable[Record], events: Iterable[Event]) -> None:
    """The dead letters are these events: as often as they were sent, key and value as they were."""
    found = sorted((letter.key or b"", letter.value is None, letter.value or b"") for letter in letters)
    expected = sorted((event.key or b"", event.value is None, event.value or b"") for event in events)
    assert expected, "the generator made no malformed events"
    assert found == expected


def time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def by(rows: Iterable[dict[str, Any]], keys: tuple[str, ...], values: tuple[str, ...]) -> dict[Any, Any]:
    """Rows as a mapping from their keys to their values; of one column itself, of several a tuple."""

    def pick(row: dict[str, Any], names: tuple[str, ...]) -> Any:
        return row[names[0]] if len(names) == 1 else tuple(row[name] for name in names)

    return {pick(row, keys): pick(row, values) for row in rows}


def test_word_count_goes_on_from_its_checkpoint(job_run: Runs) -> None:
    run = job_run("word-count", max_offsets_per_trigger="200")
    events = run.generate(seed=11, count=300)
    run.run()
    events += run.generate(seed=12, count=200)
    run.run()
    expected = word_count.word_counts(events)
    assert {word: row["count"] for word, row in run.last_by_key("word-counts").items()} == expected
    assert by(run.table("word_counts"), ("word",), ("count",)) == expected
    letters = run.dead_letters()
    same_records(letters, word_count.malformed_lines(events))
    assert {dict(letter.headers)["barnabas.error"] for letter in letters} == {b"the value is not UTF-8"}
    assert {dict(letter.headers)["barnabas.topic"] for letter in letters} == {run.names["lines"].encode()}
    assert [one.input_rows for one in run.progress if one.query == "counts" and one.input_rows] == [200, 100, 200]
    assert next(one.lag for one in run.progress if one.query == "counts") == 100, "told after the first micro-batch"
    assert run.progress[-1].lag == 0


def test_tweets(job_run: Runs) -> None:
    run = job_run("tweets", **SEVERAL_BATCHES)
    events = run.generate(seed=12, count=1000, rate=2)
    run.run()
    popular = [record.json for record in run.records("popular-tweets")]
    assert {tweet["id"]: {**tweet, "at": time(tweet["at"])} for tweet in popular} == tweets.popular(events)
    assert len(popular) == len(tweets.popular(events)), "a tweet that was sent twice is popular once"
    counts = run.last_by_key("hashtags-per-minute").values()
    assert by(counts, ("hashtag", "minute"), ("tweets",)) == tweets.hashtags_per_minute(events)
    same_records(run.dead_letters(), malformed(events, tweets.SHAPES))


def test_movieflix(job_run: Runs) -> None:
    run = job_run("movieflix", **SEVERAL_BATCHES)
    events = run.generate(seed=13, count=1000, rate=2)
    run.run()
    points = run.last_by_key("resume-points").values()
    found = {(row["user"], row["show"]): (time(row["at"]), row["position_s"]) for row in points}
    assert found == movieflix.resume_points(events)
    assert by(run.table("recommendations"), ("user", "genre"), ("shows",)) == movieflix.recommendations(events, top=3)
    stored = run.spark.read.parquet(str(run.directory / "output" / "positions"))
    rows = stored.selectExpr("user", "show", "genre", "position_s", "CAST(at AS STRING) AS at", "date").collect()
    seen = [(row.user, row.show, row.genre, row.position_s, time(row["at"] + "+00:00")) for row in rows]
    assert sorted(seen) == sorted(movieflix.positions(events))
    assert {str(row.date) for row in rows} == {str(at.date()) for *_, at in seen}
    same_records(run.dead_letters(), malformed(events, movieflix.SHAPES))


def test_gettaxi(job_run: Runs) -> None:
    run = job_run("gettaxi", **SEVERAL_BATCHES)
    events = run.generate(seed=14, count=1200, rate=4)
    run.run()
    prices = run.last_by_key("surge-prices").values()
    expected = gettaxi.surge_prices(events)
    assert by(prices, ("region", "window_start"), ("users", "taxis", "price_percent")) == expected
    assert len({price for _, _, price in expected.values()}) > 4, "prices between floor and ceiling, too"
    same_records(run.dead_letters(), malformed(events, gettaxi.SHAPES))


def test_mysocialmedia(job_run: Runs) -> None:
    run = job_run("mysocialmedia", **SEVERAL_BATCHES)
    events = run.generate(seed=15, count=1200, rate=1)
    run.run()
    totals = by(run.table("post_totals"), ("post",), ("author", "text", "likes", "comments"))
    assert totals == mysocialmedia.post_totals(events)
    ranks = by(run.table("trending"), ("window_start", "rank"), ("post", "score"))
    assert ranks == mysocialmedia.trending(events, top=5)
    same_records(run.dead_letters(), malformed(events, mysocialmedia.SHAPES))


def test_mybank(job_run: Runs) -> None:
    run = job_run("mybank", watermark="2 minutes")
    events = list(registry.generator("mybank")(16, 1200, 2))
    run.send(events[:500])
    run.run()
    run.send(events[500:])
    run.run()
    records = [record.json for record in run.records("alerts")]
    found = {
        row["id"]: (
            row["account"],
            row["amount_cents"],
            time(row["at"]),
            row["threshold_cents"],
            time(row["set_at"]),
        )
        for row in records
    }
    expected = mybank.alerts(events, timedelta(minutes=2))
    assert found == expected
    assert len(records) == len(expected), "one alert per transaction"
    undecided = mybank.alerts(events, timedelta(0)).keys() - expected.keys()
    assert undecided, "some transactions are later than the watermark"
    same_records(run.dead_letters(), malformed(events, mybank.SHAPES))


def test_mybank_takes_no_limit_per_topic(job_run: Runs) -> None:
    with pytest.raises(BadSetting, match="in step"):
        job_run("mybank", max_offsets_per_trigger="10").run()


def test_logs_and_metrics(job_run: Runs) -> None:
    run = job_run("logs-and-metrics", slo="0.98", **SEVERAL_BATCHES)
    events = run.generate(seed=17, count=1200, rate=4)
    run.run()
    rates = by(
        run.table("service_rates"), ("service", "window_start"), ("lines", "errors", "lines_per_s", "error_share")
    )
    assert rates == logs_and_metrics.service_rates(events)
    budgets = by(run.table("error_budgets"), ("service",), ("lines", "errors", "budget", "left"))
    assert budgets == logs_and_metrics.error_budgets(events, slo=0.98)
    percentiles = by(run.table("percentiles"), ("service", "metric", "window_start"), ("samples", "p50", "p95", "p99"))
    assert percentiles == logs_and_metrics.percentiles(events)
    same_records(run.dead_letters(), logs_and_metrics.malformed_events(events))
