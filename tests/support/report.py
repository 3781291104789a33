"""Figures that a test found, shown at the end of the whole run: what a passing test prints, pytest throws away.

They travel with the test's report, so they are seen also where several processes share the tests. This is a plugin of
pytest's; `tests/conftest.py` takes it in.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

Report = Callable[[str], None]
PROPERTY = "figures"


@pytest.fixture
def report(record_property: Callable[[str, object], None]) -> Report:
    """What it is called with is shown at the end of the run, whether the test passes or not."""
    return lambda text: record_property(PROPERTY, text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [one for outcome in ("passed", "failed") for one in terminalreporter.stats.get(outcome, ())]
    found = [
        (one.nodeid, text)
        for one in reports
        if one.when == "call"
        for name, text in one.user_properties
        if name == PROPERTY
    ]
    if found:
        terminalreporter.section("figures")
    for test, text in sorted(found):
        terminalreporter.write_line(f"{test}\n{text}\n")
