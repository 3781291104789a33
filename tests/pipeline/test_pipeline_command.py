"""`barnabas pipeline` as a user meets it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.broker_process import BrokerProcess
from support.jars import ROOT
from support.processes import wait_until
from support.spark import JobRun, read_topic
from support.spark_processes import Driver
from support.spark_topics import Lab

from cli.main import main
from pipeline import registry, wire
from pipeline.errors import PipelineError


def test_every_job_is_listed_and_describes_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == registry.names()
    assert "word-count" in registry.names()
    for name in registry.names():
        assert main(["pipeline", "describe", name]) == 0
        described = capsys.readouterr().out
        job = registry.load(name)
        assert job.name == name
        assert described.startswith(f"{name}: ")
        for topic in (*job.reads, *job.writes):
            assert topic.name in described and topic.doc in described
        for setting in job.settings:
            assert setting.name in described and setting.doc in described


def without_pyspark(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a Python that has no pyspark."""
    code = "import sys; sys.modules['pyspark'] = None; from cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "pipeline", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environment}, check=False
    )


RUN = ("run", "word-count", "--bootstrap-server", "127.0.0.1:1", "--checkpoint", "/nowhere/never")


def test_without_pyspark_everything_but_running_works_and_running_says_what_to_install() -> None:
    assert "word-count" in without_pyspark("list").stdout
    assert "lines of text" in without_pyspark("describe", "word-count").stdout
    run = without_pyspark(*RUN)
    assert run.returncode == 1
    (line,) = run.stderr.splitlines()
    assert line.startswith(
        "barnabas pipeline: the pipeline runs on Spark: pip install 'barnabas[pipeline]' (in a clone: "
    )


def test_without_java_one_line_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["pipeline", *RUN]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "Java 17 or later" in line and "install" in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("describe", "no-such"), "no job 'no-such'; there are: "),
        ((*RUN, "--set", "colour=red"), "has no setting 'colour'; it has: "),
        ((*RUN, "--set", "min_length=long"), "min_length='long' is no int"),
        ((*RUN, "--set", "min_length"), "--set takes name=value"),
        (("report", "word-count", "--checkpoint", "/nowhere"), "no run of word-count had this checkpoint"),
        (("generate", "word-count", "--bootstrap-server", "nowhere"), "is not host:port"),
        (("generate", "word-count", "--bootstrap-server", "x:1", "--start", "noon"), "is no ISO time"),
        (("generate", "word-count", "--bootstrap-server", "x:1", "--rate", "0"), "--rate one above 0"),
        (("generate", "word-count", "--bootstrap-server", "x:1", "--set", "topic.line=y"), "it has: "),
        (("generate", "word-count"), "--bootstrap-server is needed"),
        (("generate", "import-files", "--set", "format=orc"), "generated as json or csv"),
        (("generate", "./no.py"), "no job './no.py'"),
        ((*RUN, "--report", "chart.png"), "neither in .html nor in .svg"),
        (RUN, "no broker serves us at 127.0.0.1:1: "),
        (("generate", *RUN[1:4]), "no broker serves us at 127.0.0.1:1: "),
        (("report", "word-count", "--checkpoint", "hdfs://far/away"), "only runs with a local checkpoint"),
    ],
)
def test_what_a_user_got_wrong_is_one_line(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "FIRST_CONTACT_S", 0.0)
    assert main(["pipeline", *arguments]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_a_mistake_in_a_job_of_ones_own_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text, said in (("def build(:\n", "line 1: "), ("x = 1\n", "has no `JOB = Job(...)`")):
        (tmp_path / "own.py").write_text(text)
        assert main(["pipeline", "describe", str(tmp_path / "own.py")]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line and "own.py" in line


@pytest.mark.parametrize(
    ("job", "settings", "said"),
    [
        ("word-count", {"starting_offsets": "noon"}, "got noon"),
        ("tweets", {"watermark": "soon"}, "job tweets does not start: "),
        ("export-files", {"fields": "sensor STRONG"}, "job export-files does not start: "),
        ("import-jdbc", {"url": "jdbc:nothing:at-all"}, "job import-jdbc does not start: "),
        ("export-jdbc", {"url": "jdbc:derby:memory:never-made"}, "not found"),
        ("mirror", {"target_bootstrap_servers": "nowhere"}, "bootstrap server 'nowhere' is not host:port"),
    ],
)
def test_what_spark_refuses_is_one_line(
    job_run: Callable[..., JobRun], job: str, settings: dict[str, str], said: str, lab: Lab
) -> None:
    """Whether Spark refuses it at once or when the first rows come, and on whichever side of its wall to Python."""
    topic = lab.topic()
    lab.send(topic, range(3))
    run = job_run(job, **settings, **({"topic.readings": topic} if job in ("mirror", "export-jdbc") else {}))
    with pytest.raises(PipelineError) as refused:
        run.run()
    (line,) = str(refused.value).splitlines()
    assert said in line and "Traceback" not in line, line


def test_the_same_seed_sends_the_same_events(
    pipeline_broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["pipeline", "generate", "word-count", "--bootstrap-server", pipeline_broker.bootstrap]
    arguments += ["--count", "50", "--seed", "7", "--start", "2026-01-01T00:00:00+00:00"]
    for topic in ("seeded-1", "seeded-2"):
        assert main([*arguments, "--set", f"topic.lines={topic}"]) == 0
        assert capsys.readouterr().out.startswith("50 events sent")
    first, second = (read_topic(pipeline_broker.bootstrap, topic) for topic in ("seeded-1", "seeded-2"))
    assert [(one.key, one.value, one.timestamp) for one in first] == [
        (one.key, one.value, one.timestamp) for one in second
    ]
    expected = list(registry.generator("word-count")(7, 50, 100.0))
    assert [(one.value, one.timestamp) for one in first] == [(one.value, one.timestamp_ms) for one in expected]


def test_a_run_shows_each_micro_batch_ctrl_c_ends_it_and_a_chart_is_left(
    pipeline_broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"lines": "ctrl-c-lines", "word-counts": "ctrl-c-counts", "word-count-dead-letters": "ctrl-c-dead"}
    settings = [text for name, topic in names.items() for text in ("--set", f"topic.{name}={topic}")]
    servers = ["--bootstrap-server", pipeline_broker.bootstrap]
    assert main(["pipeline", "generate", "word-count", *servers, "--count", "300", *settings[:2]]) == 0
    checkpoint = tmp_path / "checkpoint"
    arguments = [*servers, "--checkpoint", str(checkpoint), "--master", "local[2]", *settings]
    driver = Driver(tmp_path, "word-count", *arguments)
    try:
        wait_until(
            lambda: (
                driver.process.poll() is not None or all(f"\n{name} " in driver.log for name in ("counts", "table"))
            ),
            90,
            "the first micro-batches",
        )
        assert driver.interrupt() == 0, driver.log
    finally:
        driver.close()
    lines = [line for line in driver.log.splitlines() if "WARNING" not in line]
    assert lines[0].split() == ["query", "batch", "rows", "rows/s", "in", "rows/s", "lag", "late", "ms"]
    first = next(line for line in lines if line.startswith("counts"))
    assert first.split()[1:3] == ["0", "300"] and first.split()[5] == "0"
    assert lines[-1] == "stopped; the same command goes on from its checkpoint", driver.log
    assert "Traceback" not in driver.log and "Exception" not in driver.log
    assert "<svg" in (checkpoint / "report.html").read_text()
    chart = tmp_path / "chart.svg"
    assert main(["pipeline", "report", "word-count", "--checkpoint", str(checkpoint), "--report", str(chart)]) == 0
    assert chart.read_text().startswith("<svg")


def test_ctrl_c_while_spark_starts(pipeline_broker: BrokerProcess, tmp_path: Path) -> None:
    arguments = ["--bootstrap-server", pipeline_broker.bootstrap, "--checkpoint", str(tmp_path / "checkpoint")]
    driver = Driver(tmp_path, "word-count", *arguments)
    try:
        wait_until(lambda: driver.process.poll() is not None or "WARNING" in driver.log, 60, "a JVM that starts")
        assert driver.interrupt() == 130, driver.log
    finally:
        driver.close()
    lines = [line for line in driver.log.splitlines() if "WARNING" not in line]
    assert lines == ["barnabas pipeline: interrupted"], driver.log
    wait_until(lambda: not group_exists(driver.process.pid), 30, "the end of the JVM")


def group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
