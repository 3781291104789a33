"""Jobs that move records of any topic: into Parquet, into files and back, into a database and back."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from naive import readings
from naive.parsing import malformed
from pyspark.sql import SparkSession
from support.spark import JobRun, send
from support.spark_topics import Lab

from cli.main import main
from pipeline import registry
from pipeline.errors import BadSetting
from pipeline.generators import Event
from pipeline.generators.readings import FIELDS
from pipeline.job import Context
from pipeline.jobs.big_data_ingestion import records_per_minute

Runs = Callable[..., JobRun]
EXPORTED = f"{FIELDS}, kafka_key STRING, kafka_timestamp TIMESTAMP, kafka_partition INT, kafka_offset BIGINT"


def as_reading(row: dict[str, Any]) -> tuple[str, int, str, datetime]:
    at = row["at"] if isinstance(row["at"], datetime) else datetime.fromisoformat(row["at"])
    return row["sensor"], row["value"], row["note"], at.astimezone(UTC)


def expected_readings(events: list[Event]) -> list[tuple[str, int, str, datetime]]:
    return sorted(as_reading(reading) for reading in readings.readings(events))


def values(run: JobRun) -> list[bytes]:
    return sorted(letter.value or b"" for letter in run.dead_letters())


def test_big_data_ingestion(job_run: Runs, lab: Lab) -> None:
    topics = {"readings": lab.topic(2), "others": lab.topic()}
    lab.send(lab.topic(suffix=f"-{topics['others']}"), range(3))  # a name that only contains one of them does not count
    setting = {"topic.readings": "|".join(topics.values()), "max_offsets_per_trigger": "400"}
    run = job_run("big-data-ingestion", watermark="2 minutes", **setting)
    generate = registry.generator("big-data-ingestion")
    events = [*generate(21, 900, 4), *(event._replace(topic="others") for event in generate(22, 100, 4))]
    send(lab.bootstrap, events, topics)
    run.run()
    named = [event._replace(topic=topics[event.topic]) for event in events]

    stored = lab.spark.read.parquet(str(run.directory / "output" / "records"))
    rows = stored.selectExpr("topic", "key", "value", "unix_millis(timestamp) AS ms", "headers").collect()
    found = [
        (r.topic, bytes(r.key), None if r.value is None else bytes(r.value), r.ms,
         tuple((h.key, None if h.value is None else bytes(h.value)) for h in r.headers or ()))
        for r in rows
    ]  # fmt: skip
    assert sorted(found, key=repr) == sorted((tuple(event) for event in named), key=repr), "all as it was, exactly once"
    assert (
        len({(r.topic, r.partition, r.offset) for r in stored.select("topic", "partition", "offset").collect()}) == 1000
    )

    expected = readings.records_per_minute(named)
    speed = run.table("records_per_minute")
    assert {(row["topic"], row["minute"]): (row["records"], row["bytes"]) for row in speed} == expected
    # The answer uses the speed layer from a moment on, and does not look at it before that.
    minutes = sorted({minute for _, minute in expected})
    recent = [row for row in speed if row["minute"] >= minutes[2]]
    answer = records_per_minute(stored, lab.spark.createDataFrame(recent), until=minutes[2]).collect()
    assert {(row.topic, row.minute): (row.records, row.bytes) for row in answer} == expected


@pytest.mark.parametrize("file_format", ["json", "csv", "parquet"])
def test_export_to_files_and_import_of_them(job_run: Runs, file_format: str) -> None:
    export = job_run("export-files", format=file_format, max_offsets_per_trigger="150")
    events = export.generate(seed=23, count=300)
    export.run()
    broken = malformed(events, readings.SHAPES)
    assert broken and values(export) == sorted(event.value or b"" for event in broken)

    directory = str(export.directory / "output" / "export")
    imported = job_run("import-files", format=file_format, path=directory, fields=EXPORTED)
    imported.run()
    records = imported.records("imported")
    assert sorted(as_reading(record.json) for record in records) == expected_readings(events)
    assert all(record.key == record.json["sensor"].encode() for record in records)
    assert all(record.timestamp == int(as_reading(record.json)[3].timestamp() * 1000) for record in records)
    assert sorted(record.json["kafka_offset"] for record in records) == sorted(
        offset for offset, event in enumerate(events) if event not in broken
    )
    assert values(imported) == []


def test_import_of_json_lines_keeps_broken_ones(job_run: Runs, tmp_path: Path) -> None:
    events = list(registry.generator("export-files")(24, 200, 4))
    lines = [event.value for event in events if event.value and not {10, 13} & set(event.value)]
    assert any(line.startswith(b"\xff") for line in lines), "bytes that are no text, too"
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "one.json").write_bytes(b"\n".join(lines))
    run = job_run("import-files", path=str(tmp_path / "files"))
    run.run()
    good = [Event("readings", None, line, 0) for line in lines]
    assert sorted(as_reading(record.json) for record in run.records("imported")) == expected_readings(good)
    broken = malformed(good, readings.SHAPES)
    assert broken and values(run) == sorted(event.value or b"" for event in broken)
    assert all(b"one.json" in (dict(letter.headers)["barnabas.topic"] or b"") for letter in run.dead_letters())
    (tmp_path / "files" / "two.json").write_bytes(lines[0])
    run.run()
    assert len(run.records("imported")) == len(lines) - len(broken) + 1, "only the new file is read again"


def test_import_of_csv_keeps_broken_rows(job_run: Runs, tmp_path: Path) -> None:
    events = list(registry.generator("export-files")(25, 100, 4))
    good = readings.readings(events)
    (tmp_path / "files").mkdir()
    with open(tmp_path / "files" / "one.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
        writer.writerow(["sensor", "value", "note", "at"])
        for number, row in enumerate(good):
            writer.writerow([row["sensor"], row["value"], row["note"], row["at"].isoformat()])
            if number % 20 == 0:
                writer.writerow([row["sensor"], "many", "plain", row["at"].isoformat()])
        file.write("nobody,1,,2026-01-01T00:00:00Z\n")
    run = job_run("import-files", path=str(tmp_path / "files"), format="csv")
    run.run()
    assert sorted(as_reading(record.json) for record in run.records("imported")) == expected_readings(events)
    letters = values(run)
    assert len(letters) == len(range(0, len(good), 20)) + 1
    assert sum(b'"many","plain"' in value for value in letters) == len(letters) - 1
    assert [value for value in letters if b"many" not in value] == [b"nobody,1,,2026-01-01T00:00:00.000Z"], (
        "null, not empty"
    )


def test_export_to_a_database_and_import_from_it(job_run: Runs) -> None:
    url = "jdbc:derby:memory:pipeline_movers;create=true"
    every = job_run("export-jdbc", url=url, table="every_reading", max_offsets_per_trigger="150")
    events = every.generate(seed=26, count=300)
    every.run()
    broken = malformed(events, readings.SHAPES)
    assert broken and values(every) == sorted(event.value or b"" for event in broken)

    imported = job_run("import-jdbc", url=url, table="every_reading", fields=EXPORTED)
    imported.run()
    assert [(one.query, one.input_rows) for one in imported.progress] == [
        ("records", len(events) - len(broken)),
        ("dead-letters", 0),
    ]
    records = imported.records("imported")
    assert sorted(as_reading(record.json) for record in records) == expected_readings(events)
    offsets = [record.json["kafka_offset"] for record in records]
    assert sorted(offsets) == [offset for offset, event in enumerate(events) if event not in broken]

    newest = job_run("export-jdbc", url=url, table="newest_reading", keys="sensor", max_offsets_per_trigger="150")
    newest.send(events)
    newest.run()
    query = '(SELECT * FROM newest_reading WHERE "value" > 0) AS warm'
    warm = job_run("import-jdbc", url=url, table=query)
    warm.run()
    expected = {name: as_reading(row) for name, row in readings.newest_readings(events).items() if row["value"] > 0}
    assert {key: as_reading(row) for key, row in warm.last_by_key("imported").items()} == expected
    assert all(
        json.loads(record.value or b"").keys() == {"sensor", "value", "note", "at"}
        for record in warm.records("imported")
    )


def test_import_of_generated_rows_keeps_broken_ones(job_run: Runs, spark: SparkSession) -> None:
    url = "jdbc:derby:memory:pipeline_imports;create=true"
    events = list(registry.generator("import-jdbc")(27, 200, 4))
    run = job_run("import-jdbc", url=url, table="dumped")
    deliver = registry.delivery("import-jdbc")
    assert deliver is not None
    settings, _ = Context.check_settings(run.declared, run.settings)
    assert deliver(events, settings, lambda: spark) == f"200 rows written to dumped of {url}"
    run.run()
    records = run.records("imported")
    assert sorted(as_reading(record.json) for record in records) == expected_readings(events)
    assert all(record.key == record.json["sensor"].encode() for record in records)
    letters = run.dead_letters()
    broken = malformed(events, readings.SHAPES)
    assert broken and sorted(json.loads(letter.value or b"")["sensor"] for letter in letters) == sorted(
        (event.key or b"").decode() for event in broken
    )
    assert {dict(letter.headers)["barnabas.error"] for letter in letters} == {b"field value is no bigint"}
    with pytest.raises(BadSetting, match="no column 'colour'; it has: sensor, value, note, at"):
        job_run("import-jdbc", url=url, table="dumped", fields="colour STRING").run()


@pytest.mark.parametrize("file_format", ["json", "csv"])
def test_import_of_generated_files_keeps_broken_lines(job_run: Runs, tmp_path: Path, file_format: str) -> None:
    arguments = ["pipeline", "generate", "import-files", "--count", "150", "--start", "2026-01-01T00:00:00+00:00"]
    arguments += ["--set", f"path={tmp_path}/in", "--set", f"format={file_format}", "--rate", "4"]
    run = job_run("import-files", path=f"{tmp_path}/in", format=file_format)
    expected: list[tuple[str, int, str, datetime]] = []
    letters = 0
    for seed in (28, 29):  # the second file appears between two runs
        assert main([*arguments, "--seed", str(seed)]) == 0
        run.run()
        events = list(registry.generator("import-files")(seed, 150, 4))
        expected = sorted(expected + expected_readings(events))
        letters += len(malformed(events, readings.SHAPES))
        assert sorted(as_reading(record.json) for record in run.records("imported")) == expected
        assert len(values(run)) == letters > 0
