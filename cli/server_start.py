"""`barnabas server-start`: the one command that runs a broker instead of talking to one."""

from __future__ import annotations

from collections.abc import Sequence

from cli.version import version


def server_start(properties: str, overrides: Sequence[str]) -> int:
    from broker.main import run

    return run(properties, overrides, version())
