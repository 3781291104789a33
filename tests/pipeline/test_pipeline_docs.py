"""docs/spark.md does what it says: its Python runs, and what it prints is what the page shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.broker_process import BrokerProcess
from support.jars import ROOT

from cli.main import main
from pipeline import registry, session
from pipeline.run import Run, RunOptions

PAGE = ROOT / "docs" / "spark.md"
BLOCK = re.compile(r"```(?P<kind>python|sh)\n(?P<code>.*?)```(?:\n```text\n(?P<shown>.*?)```)?", re.S)


def plain(text: str) -> str:
    """Without what differs from run to run: the time that sending took, and blanks at the ends of lines."""
    lines = [re.sub(r"sent in [\d.]+ s", "sent in ? s", line.rstrip()) for line in text.splitlines()]
    return "\n".join(lines).strip("\n")


def test_the_walk_through_prints_what_the_page_shows(
    spark: SparkSession,
    pipeline_broker: BrokerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(session, "build_session", lambda name: spark)
    namespace: dict[str, Any] = {}
    compared = 0
    for block in BLOCK.finditer(PAGE.read_text()):
        capsys.readouterr()  # of blocks that are not compared
        code = block["code"].replace("localhost:9092", pipeline_broker.bootstrap)
        if block["kind"] == "python":
            exec(compile(code, str(PAGE), "exec"), namespace)
        elif not run_commands(code, spark, pipeline_broker.bootstrap, tmp_path):
            continue  # it starts processes of its own, whose output has rates and durations in it
        printed = capsys.readouterr().out.replace(pipeline_broker.bootstrap, "localhost:9092")
        assert plain(printed) == plain(block["shown"] or ""), code
        compared += 1
    assert compared >= 9


def run_commands(code: str, spark: SparkSession, bootstrap: str, directory: Path) -> bool:
    """Whether all of them are such that their output is the same every time; a run's lines are not."""
    comparable = True
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:2] == ["barnabas", "pipeline"] and words[2] in ("list", "describe", "generate"):
            assert main(words[1:]) == 0
        else:
            comparable = False
        if words[:4] == ["barnabas", "pipeline", "run", "tweets"]:  # what follows on the page reads its results
            run = Run(spark, registry.load("tweets"), RunOptions(bootstrap, str(directory / "run"), available_now=True))
            run.start()
            run.follow()
    return comparable
