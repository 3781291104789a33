"""docs/replication.md does what it says: its walk-through is run, and what the tools print is what the page shows."""

from __future__ import annotations

import io
import re
import shlex
import sys
import threading
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from support.jars import ROOT
from support.processes import ServerProcess, free_ports
from support.tools import CONSOLE_CONSUMER, CONSOLE_PRODUCER, LEADER_ELECTION, TOPICS, StockTools

from cli.main import main

pytestmark = [pytest.mark.stock, pytest.mark.slow]

PAGE = ROOT / "docs" / "replication.md"
BLOCK = re.compile(r"```(?P<kind>properties|sh)\n(?P<code>.*?)```(?:\n```text\n(?P<shown>.*?)```)?", re.S)
TOOLS = {
    "kafka-topics.sh": TOPICS,
    "kafka-console-producer.sh": CONSOLE_PRODUCER,
    "kafka-console-consumer.sh": CONSOLE_CONSUMER,
    "kafka-leader-election.sh": LEADER_ELECTION,
}


class Reader:
    """Types in what the page says, with ports and directories of its own."""

    def __init__(self, directory: Path, tools: StockTools) -> None:
        self.directory = directory
        self.tools = tools
        self.ports = dict(zip(("9091", "9092", "9093", "9094"), map(str, free_ports(4)), strict=True))
        self.nodes: dict[str, ServerProcess] = {}
        self.variables: dict[str, str] = {}
        self.behind: threading.Thread | None = None

    def own(self, text: str) -> str:
        text = re.sub(r"localhost:(\d+)", lambda found: f"localhost:{self.ports[found[1]]}", text)
        return text.replace("/tmp/walk", str(self.directory))

    def write(self, properties: str) -> None:
        name = properties.partition("\n")[0].removeprefix("# ")
        path = self.directory / name
        path.write_text(self.own(properties))
        (port,) = re.findall(r"PLAINTEXT://localhost:(\d+)", path.read_text())
        command = [sys.executable, "-m", "cli.main", "server-start", str(path)]
        self.nodes[name] = ServerProcess(name, command, int(port), self.directory / f"{name}.log", 30)

    def type(self, line: str) -> str:
        """What one line prints."""
        for name, value in self.variables.items():
            line = line.replace(f"${name}", value)
        line, behind = (line.rstrip("& "), True) if line.endswith("&") else (line, False)
        if assigned := re.fullmatch(r"(\w+)=\$\((.*)\)", line):
            self.variables[assigned[1]] = self.type(assigned[2]).strip()
            return ""
        words = shlex.split(self.own(line))
        match words:
            case ["barnabas", "server-start", name]:
                assert behind
                self.nodes[name].start()
                return ""
            case ["pkill", "-f", name]:
                assert self.nodes[name].terminate() == 0
                return ""
            case ["wait", _]:
                assert self.behind is not None
                self.behind.join(60)
                assert not self.behind.is_alive()
                return ""
        if behind:
            self.behind = threading.Thread(target=self.pipe, args=(line,), daemon=True)
            self.behind.start()
            return ""
        return self.pipe(line)

    def pipe(self, line: str) -> str:
        text = ""
        for part in line.split(" | "):
            text = self.run(shlex.split(self.own(part)), text)
        return text

    def run(self, words: list[str], stdin: str) -> str:
        match words:
            case ["seq", first, last]:
                return "".join(f"{number}\n" for number in range(int(first), int(last) + 1))
            case ["echo", text]:
                return f"{text}\n"
            case ["sort", "-n"]:
                return "".join(sorted(stdin.splitlines(keepends=True), key=int))
            case ["uniq"]:
                return "".join(dict.fromkeys(stdin.splitlines(keepends=True)))
            case ["wc", "-l"]:
                return f"{len(stdin.splitlines())}\n"
            case ["barnabas", *arguments]:
                output = io.StringIO()
                paths = [str(self.directory / one) if one.endswith(".properties") else one for one in arguments]
                with redirect_stdout(output):
                    assert main(paths) == 0
                return output.getvalue()
            case [tool, *arguments]:
                result = self.tools.run(TOOLS[tool], *arguments, stdin=stdin)
                assert result.code == 0, result.out + result.err
                return result.out
        raise AssertionError(f"the page says {words}")


@pytest.fixture
def reader(tmp_path: Path, stock_tools: StockTools) -> Iterator[Reader]:
    made = Reader(tmp_path, stock_tools)
    try:
        yield made
    finally:
        for node in made.nodes.values():
            node.close()


def plain(text: str) -> list[str]:
    """Without what differs from run to run: the topic's id, and which of the replicas in sync leads."""
    text = re.sub(r"TopicId: \S+", "TopicId: ?", text)
    lines = []
    for line in text.splitlines():
        told = dict(re.findall(r"(\w+): ([\d,]+)", line))
        if "Isr" in told:
            assert told["Leader"] in told["Isr"].split(","), line
            line = re.sub(r"Leader: \d", "Leader: ?", line)
        line = re.sub(r"(?<=: )\d(,\d)+", lambda found: ",".join(sorted(found[0].split(","))), line)
        lines.append(line.rstrip())
    return lines


def test_the_walk_through_prints_what_the_page_shows(reader: Reader) -> None:
    walk = PAGE.read_text().partition("## Settings that matter")[0]
    compared = 0
    for block in BLOCK.finditer(walk):
        if block["kind"] == "properties":
            reader.write(block["code"])
            continue
        printed = "".join(reader.type(line) for line in block["code"].splitlines())
        if block["shown"] is not None:
            assert plain(printed) == plain(block["shown"]), block["code"]
            compared += 1
    assert compared == 5
