"""`barnabas storage` beside kafka-storage.sh: the same sentences, the same exit codes, the same bytes on disk."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.tools import DUMP_LOG, STORAGE, StockTools, ToolResult

from cli.main import main
from protocol.records import iter_batches
from protocol.uuids import Uuid

pytestmark = pytest.mark.stock

VOTERS = "1@127.0.0.1:19093:_toUUGXjRGuK3jQ5HWnFtw,2@[::1]:19094:OGcVzck1ReuyWr_7V0uZgQ"


def properties(directory: Path, **settings: str) -> Path:
    """A combined node with two log directories under `directory`; a setting of "" is left out."""
    values = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:19093",
        "log.dirs": f"{directory / 'a'},{directory / 'b'}",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    path = directory / "node.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items() if value))
    return path


class Side:
    """One of the two programs, with a directory of its own."""

    def __init__(self, directory: Path, tools: StockTools | None, capture: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self._tools = tools
        self._capture = capture
        directory.mkdir()

    def run(self, *arguments: str) -> ToolResult:
        if self._tools is not None:
            result = self._tools.run(STORAGE, *arguments)
            return result._replace(err=_reason(result.err))
        self._capture.readouterr()
        code = main(["storage", *arguments])
        said = self._capture.readouterr()
        return ToolResult(code, said.out, said.err)


def _reason(err: str) -> str:
    """Where Kafka's tool dies of an exception: its message."""
    found = re.search(r"(?:RuntimeException|IllegalArgumentException): (.*)", err)
    return err if found is None else found[1] + "\n"


def shown(result: ToolResult, directory: Path) -> list[str]:
    """Directories come in hash order from Kafka; ids and salts are drawn."""
    text = (result.out + result.err).replace(str(directory), "<dir>")
    text = re.sub(r"directory\.id=[\w-]{22}", "directory.id=<id>", text)
    text = re.sub(r"(salt|storedKey|serverKey)=\[[^\]]*\]", r"\1=<drawn>", text)
    text = re.sub(r"Log directory <dir>/[ab] is already", "Log directory <dir>/? is already", text)
    return [f"exit code {result.code}", *sorted(text.splitlines())]


def masked(path: Path) -> bytes:
    """A file of batches without times and the checksums over them."""
    data = path.read_bytes()
    out = bytearray(data)
    for position, _ in iter_batches(data):
        out[position + 17 : position + 21] = bytes(4)
    recent = re.escape(struct.pack(">q", time.time_ns() // 1_000_000)[:4])
    return re.sub(recent + b"....", b"<a time>", bytes(out), flags=re.DOTALL)


def files(directory: Path) -> dict[str, bytes | list[str]]:
    found: dict[str, bytes | list[str]] = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if path.name == "meta.properties":
            lines = path.read_text().splitlines()
            found[name] = [re.sub(r"^#\w{3} .*|(?<=directory\.id=).*", "<drawn>", line) for line in lines]
        elif path.suffix == ".checkpoint":
            found[name] = masked(path)
            found[f"{name} mode"] = [oct(path.stat().st_mode)]
        elif path.is_dir():
            found[name] = ["directory"]
    return found


CASES: dict[str, tuple[dict[str, str], list[Sequence[str]]]] = {
    "standalone": ({}, [("format", "-t", "c1", "-s"), ("info",), ("format", "-t", "c1", "-s")]),
    "again": (
        {},
        [("format", "-t", "c1", "-s"), ("format", "-t", "c1", "-s", "-g"), ("format", "-t", "c2", "-N", "-g")],
    ),
    "voters": ({}, [("format", "--cluster-id", "c1", "--initial-controllers", VOTERS), ("info",)]),
    "another-voter": ({"node.id": "3"}, [("format", "-t", "c1", "-I", VOTERS)]),
    "no-voters": ({}, [("format", "-t", "c1", "--no-initial-controllers"), ("info",)]),
    "nobody-named": ({}, [("format", "-t", "c1"), ("info",)]),
    "static": (
        {"controller.quorum.voters": "1@127.0.0.1:19093", "controller.quorum.bootstrap.servers": ""},
        [("format", "-t", "c1", "-s"), ("format", "-t", "c1", "-f", "kraft.version=1"), ("format", "-t", "c1")],
    ),
    "broker": (
        {"process.roles": "broker", "listeners": "PLAINTEXT://127.0.0.1:19092"},
        [("format", "-t", "c1", "-s"), ("format", "-t", "c1")],
    ),
    "controller": (
        {"process.roles": "controller", "listeners": "CONTROLLER://127.0.0.1:19093"},
        [("format", "-t", "c1", "--standalone")],
    ),
    "metadata-directory": ({"metadata.log.dir": "{dir}/m"}, [("format", "-t", "c1", "-s"), ("info",)]),
    **{
        f"release-{release}": ({}, [("format", "-t", "c1", "-I", VOTERS, "-r", release)])
        for release in ("3.3", "3.5-IV1", "3.9", "4.0", "4.1-IV0", "4.2.1", "4.3-IV0")
    },
    "features": (
        {},
        [
            (
                "format",
                "-t",
                "c1",
                "-s",
                "-f",
                "transaction.version=1",
                "-f",
                "group.version=0",
                "--feature",
                "metadata.version=26",
            )
        ],
    ),
    "wrong-features": (
        {},
        [
            ("format", "-t", "c1", "-s", "-f", "wings=1"),
            ("format", "-t", "c1", "-s", "-f", "transaction.version"),
            ("format", "-t", "c1", "-s", "-f", "transaction.version=many"),
            ("format", "-t", "c1", "-s", "-f", "kraft.version=0"),
            ("format", "-t", "c1", "-s", "-r", "3.3", "-f", "metadata.version=30"),
            ("format", "-t", "c1", "-s", "-r", "3.9", "-f", "eligible.leader.replicas.version=1"),
            ("format", "-t", "c1", "-s", "-r", "3.3", "-S", "SCRAM-SHA-256=[name=a,password=b]"),
        ],
    ),
    "wrong-voters": (
        {},
        [
            ("format", "-t", "c1", "-I", wrong)
            for wrong in (
                "",
                "1",
                "x@h:1:y",
                "1@",
                "1@h",
                "1@h:1",
                "1@h:p:y",
                "1@h:1:y",
                "1@[::1:1:y",
                "1@h:99999:y",
            )
        ]
        + [("format", "-t", "c1", "-I", f"{VOTERS},{VOTERS}")],
    ),
    "scram": (
        {},
        [
            ("format", "-t", "c1", "-s", "-S", "SCRAM-SHA-256"),
            ("format", "-t", "c1", "-s", "-S", "PLAIN=[name=a,password=b]"),
            ("format", "-t", "c1", "-s", "-S", "SCRAM-SHA-256=name=a,password=b"),
            ("format", "-t", "c1", "-s", "-S", "SCRAM-SHA-256=[password=b]"),
            ("format", "-t", "c1", "-s", "-S", "SCRAM-SHA-256=[name=a]"),
            ("format", "-t", "c1", "-s", "-S", "SCRAM-SHA-256=[name=a,saltedpassword=YCE=]"),
            ("format", "-t", "c1", "-s", "-S", "SCRAM-SHA-256=[name=a,password=b,iterations=1]"),
            ("format", "-t", "c1", "-s", "-S", "SCRAM-SHA-512=[name=a,password=b,iterations=99999]"),
            ("format", "-t", "c1", "-s", "-S", "SCRAM-SHA-256=[name=a,password=b,colour=red]"),
            (
                *("format", "-t", "c1", "-s"),
                *("-S", 'SCRAM-SHA-256=[name=alice,iterations=8192,salt="N3E=",password=secret]'),
                *("-S", 'SCRAM-SHA-512=[name=bob,iterations=4096,salt="N3E=",saltedpassword="YCE="]'),
            ),
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_same_words_and_files_as_apache_kafka(
    name: str, stock_tools: StockTools, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, calls = CASES[name]
    sides = [Side(tmp_path / "kafka", stock_tools, capsys), Side(tmp_path / "ours", None, capsys)]
    said = []
    for side in sides:
        here = {key: value.replace("{dir}", str(side.directory)) for key, value in settings.items()}
        config = properties(side.directory, **here)
        said.append([shown(side.run(*call, "-c", str(config)), side.directory) for call in calls])
    assert said[1] == said[0]
    kafkas, ours = files(tmp_path / "kafka"), files(tmp_path / "ours")
    if name in ("standalone", "again", "controller", "metadata-directory", "features", "scram"):
        # the voter's directory id was drawn; it stands in its first snapshot
        for found in (kafkas, ours):
            for path in [path for path in found if path.endswith("0000000000.checkpoint")]:
                found[path] = [str(len(found[path]))]
    assert ours == kafkas


@pytest.mark.parametrize(("file", "options"), [("controller", ["--standalone"]), ("broker", []), ("server", ["-s"])])
def test_both_format_with_the_properties_files_that_come_along(
    file: str, options: list[str], stock_tools: StockTools, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    text = (Path(__file__).parents[2] / "config" / f"{file}.properties").read_text()
    for side in (Side(tmp_path / "kafka", stock_tools, capsys), Side(tmp_path / "ours", None, capsys)):
        config = side.directory / "node.properties"
        config.write_text(re.sub(r"(?m)^log\.dirs=.*$", f"log.dirs={side.directory}/data", text))
        said.append(shown(side.run("format", "-t", "c1", *options, "-c", str(config)), side.directory))
    assert said[1] == said[0] and said[0][0] == "exit code 0"


def test_the_voters_directory_has_the_id_it_was_given(
    stock_tools: StockTools, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    side = Side(tmp_path / "ours", None, capsys)
    config = properties(side.directory)
    assert side.run("format", "-t", "c1", "-I", VOTERS, "-c", str(config)).code == 0
    assert "directory.id=_toUUGXjRGuK3jQ5HWnFtw" in (side.directory / "a" / "meta.properties").read_text()
    snapshot = side.directory / "a" / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint"
    dumped = stock_tools.run(DUMP_LOG, "--cluster-metadata-decoder", "--files", str(snapshot))
    assert dumped.code == 0 and '"voterDirectoryId":"OGcVzck1ReuyWr_7V0uZgQ"' in dumped.out.replace(" ", "")


def test_a_random_id_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["storage", "random-uuid"]) == 0
    drawn = capsys.readouterr().out.strip()
    assert str(Uuid.parse(drawn)) == drawn


def test_a_mistake_in_the_properties_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["storage", "info", "-c", str(tmp_path / "none.properties")]) == 1
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and "none.properties" in said.err
