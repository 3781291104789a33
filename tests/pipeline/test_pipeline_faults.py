"""Broker and Spark are killed with SIGKILL in mid-stream; what promises exactly-once must be exactly right."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.broker_process import BrokerProcess
from support.processes import wait_until
from support.spark import JobRun
from support.spark_processes import Driver

from pipeline.generators import START_MS, Event
from pipeline.run import Run, RunOptions

JOB = str(Path(__file__).resolve().parents[1] / "support" / "spark_number_job.py")
MALFORMED = 5
TIMEOUT_S = 90


@pytest.fixture
def killable(tmp_path: Path) -> Iterator[BrokerProcess]:
    server = BrokerProcess(tmp_path / "broker", extra={"log.retention.ms": "-1"})
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def numbers(spark: SparkSession, killable: BrokerProcess, tmp_path: Path) -> JobRun:
    return JobRun(spark, killable.bootstrap, tmp_path, JOB, "faults", {"max_offsets_per_trigger": "300"})


def events(numbers: Iterable[int]) -> list[Event]:
    """Number n as JSON; every hundredth is followed by a line that is none."""
    made = []
    for n in numbers:
        made.append(Event("numbers", str(n).encode(), b'{"number": %d}' % n, START_MS + n))
        if n % 100 == 99:
            made.append(Event("numbers", b"broken", b'{"number": "%d' % n, START_MS + n))
    return made


def expected_buckets(count: int) -> list[tuple[int, int, int]]:
    own = [[n for n in range(count) if n % 7 == bucket] for bucket in range(7)]
    return [(bucket, len(numbers), sum(numbers)) for bucket, numbers in enumerate(own)]


def buckets(run: JobRun, table: str) -> list[tuple[int, int, int]]:
    return sorted((row["bucket"], row["count"], row["total"]) for row in run.table(table))


def read_so_far(run: JobRun) -> int:
    """Rows that the keyed table knows of; 0 while it is not there or busy."""
    try:
        return sum(row["count"] for row in run.table("buckets"))
    except sqlite3.OperationalError:
        return 0


def check_exactly_right(run: JobRun, count: int) -> None:
    assert sorted(row["number"] for row in run.files("numbers")) == list(range(count))
    assert buckets(run, "buckets") == expected_buckets(count)
    assert buckets(run, "snapshot") == expected_buckets(count)
    letters = {letter.value for letter in run.dead_letters()}
    assert letters == {b'{"number": "%d' % n for n in range(99, count, 100)}  # at least once, and none is missing


def test_the_broker_is_killed_and_restarted_under_a_running_query(numbers: JobRun, killable: BrokerProcess) -> None:
    numbers.send(events(range(600)))
    running = RunOptions(
        numbers.bootstrap,
        checkpoint=str(numbers.directory / "checkpoint"),
        output=str(numbers.directory / "output"),
        settings=numbers.settings,
    )
    run = Run(numbers.spark, numbers.declared, running)
    run.start()
    failures: list[BaseException] = []

    def follow() -> None:
        try:
            run.follow(numbers.progress.append)
        except BaseException as failure:
            failures.append(failure)

    follower = threading.Thread(target=follow)
    follower.start()
    try:
        wait_until(lambda: bool(failures) or read_so_far(numbers) >= 300, TIMEOUT_S, "the first micro-batch")
        for begin in (600, 900):
            killable.kill()
            killable.start()
            numbers.send(events(range(begin, begin + 300)))
        wait_until(lambda: bool(failures) or read_so_far(numbers) >= 1200, TIMEOUT_S, "all rows")
    finally:
        run.stop()
        follower.join()
    assert not failures, failures
    numbers.run()
    check_exactly_right(numbers, 1200)


def test_spark_is_killed_and_goes_on_from_its_checkpoint(
    numbers: JobRun, killable: BrokerProcess, tmp_path: Path
) -> None:
    """The driver and its JVM die in the middle of a micro-batch, as on a machine that loses power."""
    numbers.send(events(range(3000)))
    arguments = ["--bootstrap-server", killable.bootstrap, "--checkpoint", str(tmp_path / "checkpoint")]
    arguments += ["--output", str(tmp_path / "output"), "--master", "local[2]"]
    for name, value in numbers.settings.items():
        arguments += ["--set", f"{name}={value}"]
    driver = Driver(tmp_path, JOB, *arguments)
    try:
        wait_until(
            lambda: driver.process.poll() is not None or read_so_far(numbers) >= 500, TIMEOUT_S, "some micro-batches"
        )
        assert driver.process.poll() is None, driver.log
        driver.kill()
    finally:
        driver.close()
    assert read_so_far(numbers) < 3000
    numbers.run(max_offsets_per_trigger="1500")
    check_exactly_right(numbers, 3000)
