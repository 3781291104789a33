"""Figures that a test found, shown at the end of the whole run: what a passing test prints, pytest throws away.

They travel with the test's report, so they are seen also where several processes share the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

Report = Callable[[str], None]
PROPERTY = "figures"


def figures(reports: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """(test, text) of each of these reports of pytest's."""
    for one in reports:
        if getattr(one, "when", None) == "call":
            yield from ((one.nodeid, text) for name, text in one.user_properties if name == PROPERTY)
