"""Which rows of a topic are well-formed, and what is said of the others."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipeline.job import BYTES, TEXT, Topic
from pipeline.topics import ERROR, dead_letters, parse, well_formed

FIELDS = "name STRING NOT NULL, count BIGINT, at TIMESTAMP, tags ARRAY<STRING>, inner STRUCT<x: INT>"
CONNECTOR = (
    "key BINARY, value BINARY, timestamp TIMESTAMP, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, "
    "topic STRING, partition INT, offset BIGINT"
)
NO_OBJECT, GOES_ON = "the value is no such JSON object", "the value goes on after its JSON object"
VALUES: list[tuple[bytes | None, str | None]] = [
    (b'{"name": "a", "count": 1}', None),
    (b' \t{"name": "a"}\n', None),
    (b'{"name": "{", "tags": ["}{"], "inner": {"x": 1}}', None),
    (b'{"name": "a", "count": null, "unknown": {"more": [1, {}]}}', None),
    (None, "there is no value"),
    (b"", NO_OBJECT),
    (b"plain", NO_OBJECT),
    (b"7", NO_OBJECT),
    (b'["name"]', NO_OBJECT),
    (b'[{"name": "a"}]', NO_OBJECT),
    (b'{"name": "a"', NO_OBJECT),
    (b'{"name": "a", "count": "many"}', NO_OBJECT),
    (b'{"name": "a", "count": 1.5}', NO_OBJECT),
    (b'{"name": "a", "at": "noon"}', NO_OBJECT),
    (b'{"name": "a", "inner": {"x": "y"}}', NO_OBJECT),
    (b'{"name": "a\xff"}', "the value is not UTF-8"),
    (b"{}", "field name is missing"),
    (b'{"name": null}', "field name is missing"),
    (b'{"name": "a"} and more', GOES_ON),
    (b'{"name": "a"}{"name": "b"}', GOES_ON),
    (b'{"name": "a"}, {"name": "b"}', GOES_ON),
    (b'{"name": "a"}]', GOES_ON),
    (b'{"name": "a", "count": -1}', "not so: coalesce(value.count, 0) >= 0"),
]


def rows(spark: SparkSession, values: list[bytes | None]) -> DataFrame:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    made = [(b"k", value, at, [("h", b"1")] if n % 2 else None, "t", 3, n) for n, value in enumerate(values)]
    return spark.createDataFrame(made, CONNECTOR)


def test_json_objects(spark: SparkSession) -> None:
    topic = Topic("t", FIELDS, "objects", check="coalesce(value.count, 0) >= 0")
    parsed = parse(rows(spark, [value for value, _ in VALUES]), topic)
    found = [row[ERROR] for row in parsed.orderBy("offset").select(ERROR).collect()]
    assert list(zip([value for value, _ in VALUES], found, strict=True)) == VALUES
    good = [n for n, (_, error) in enumerate(VALUES) if error is None]
    assert [row.offset for row in well_formed(parsed).orderBy("offset").collect()] == good
    letters = {}
    for row in dead_letters([parsed]).collect():
        headers = [(header.key, bytes(header.value).decode()) for header in row.headers]
        own = dict(headers[-4:])
        offset = int(own["barnabas.offset"])
        assert bytes(row.key) == b"k" and (own["barnabas.topic"], own["barnabas.partition"]) == ("t", "3")
        assert headers[:-4] == ([("h", "1")] if offset % 2 else []), "a record's own headers come first"
        letters[offset] = (None if row.value is None else bytes(row.value), own["barnabas.error"])
    assert letters == {n: one for n, one in enumerate(VALUES) if one[1] is not None}, "every other row, as it was"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(TEXT, ["there is no value", None, None, "the value is not UTF-8"]), (BYTES, [None, None, None, None])],
)
def test_text_and_bytes(spark: SparkSession, kind: str, expected: list[str | None]) -> None:
    parsed = parse(rows(spark, [None, b"", "Brücke".encode(), b"\xff\x00"]), Topic("t", kind, "values"))
    assert [row[ERROR] for row in parsed.orderBy("offset").select(ERROR).collect()] == expected
