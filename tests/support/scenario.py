"""The same tool calls against Barnabas and against Apache Kafka, and their outputs made comparable.

A scenario is a list of steps; running it gives a transcript: each call with its exit code, output and errors, with
everything replaced that differs between two correct servers (ports, paths, generated ids, times). Two transcripts
are then simply equal or not, and pytest shows the lines that differ.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from support.tools import StockTools, ToolResult

SETTLE_TIMEOUT_S = 20


class Server(Protocol):
    """What a scenario needs to know of a server; BrokerProcess and AnchorKafka both have it."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def data_dir(self) -> Path: ...


class Step(NamedTuple):
    """One tool call. `{bootstrap}` and `{dir}` in arguments stand for the server's address and a directory for
    input files.

    `until`: repeat the call until its output matches, because Apache Kafka answers a change before all of its own
    caches show it; only the last output counts. `shape` makes outputs comparable that the common rules do not.
    """

    tool: str
    arguments: Sequence[str]
    stdin: str = ""
    until: str | None = None
    shape: Callable[[str], str] | None = None


# What two correct servers may differ in. The order matters: long patterns before the ones they contain.
_RULES = [
    (re.compile(r"\tat .*\n|\t\.\.\. \d+ more\n"), ""),
    (re.compile(r"TopicId: [\w-]{22}"), "TopicId: <id>"),
    (re.compile(r'"directoryId": "[\w-]{22}"'), '"directoryId": "<id>"'),
    (re.compile(r"Cluster ID: [\w-]{22}"), "Cluster ID: <id>"),
    (re.compile(r"\t[\w-]{22}\t"), "\t<id>\t"),
    (re.compile(r"ClusterId:( +)[\w-]{22}"), r"ClusterId:\1<id>"),
    (re.compile(r"\b1[5-9]\d{11}\b"), "<time>"),
]


def normalise(text: str, server: Server) -> str:
    text = text.replace(str(server.data_dir), "<data>").replace(f":{server.port}", ":<port>")
    text = re.sub(r"CONTROLLER://127\.0\.0\.1:\d+", "CONTROLLER://127.0.0.1:<port>", text)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


def run_scenario(tools: StockTools, server: Server, steps: Sequence[Step], directory: Path) -> str:
    """The transcript of all steps against `server`."""
    lines = []
    for step in steps:
        arguments = [
            argument.replace("{bootstrap}", server.bootstrap).replace("{dir}", str(directory))
            for argument in step.arguments
        ]
        result = _run_until(tools, step, arguments)
        out, err = normalise(result.out, server), normalise(result.err, server)
        if step.shape is not None:
            out = step.shape(out)
        shown = " ".join(repr(argument) if " " in argument else argument for argument in step.arguments)
        lines += [f"$ {step.tool.rsplit('.', 1)[-1]} {shown}", f"exit code {result.code}", out, err]
    return "\n".join(lines)


def _run_until(tools: StockTools, step: Step, arguments: list[str]) -> ToolResult:
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while True:
        result = tools.run(step.tool, *arguments, stdin=step.stdin)
        if step.until is None or re.search(step.until, result.out + result.err):
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"never matched {step.until!r}: {step.tool} {arguments}: {result}")
        time.sleep(0.05)


def sorted_log_dirs(text: str) -> str:
    """kafka-log-dirs prints JSON with partitions in hash order."""
    lines = []
    for line in text.splitlines():
        if line.startswith("{"):
            answer = json.loads(line)
            for broker in answer["brokers"]:
                for log_dir in broker["logDirs"]:
                    log_dir["partitions"].sort(key=lambda partition: str(partition["partition"]))
            line = json.dumps(answer, indent=1, sort_keys=True)
        lines.append(line)
    return "\n".join(lines)


def without_numbers(text: str) -> str:
    """For output where every number is a position or an age (the metadata log's, say)."""
    return re.sub(r" +", " ", re.sub(r"\b\d+\b", "<n>", text))
