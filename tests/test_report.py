"""Figures of tests are shown at the end, also of those that pass, and from whichever process they come."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
def test_counts(report):
    report("3 apples\\n4 pears")

def test_fails(report):
    report("5 plums")
    assert not "ripe"

def test_has_nothing_to_say():
    pass
"""


@pytest.mark.parametrize("processes", ["0", "2"])
def test_figures_are_shown(processes: str, tmp_path: Path) -> None:
    (tmp_path / "test_fruit.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "support.report",
        "-n",
        processes,
        "-q",
        "--rootdir",
        str(tmp_path),
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    _, _, shown = done.stdout.partition("= figures =")
    assert "test_fruit.py::test_counts\n3 apples\n4 pears\n" in shown, done.stdout + done.stderr
    assert "test_fruit.py::test_fails\n5 plums\n" in shown
    assert "nothing" not in shown
