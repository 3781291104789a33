"""`barnabas` as a person uses it: what it prints, how it ends, and how it says what is wrong."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaProducer
from support.broker_process import BrokerProcess
from support.jars import ROOT
from support.processes import combined_node_properties, free_ports, wait_until, write_properties

from cli.version import version


def barnabas(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, cwd=ROOT)


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    write_properties(path, combined_node_properties(tmp_path / "data", *free_ports(2)))
    return path


def refusal(path: Path, *overrides: str) -> str:
    """The one line that a node says which cannot start."""
    words = [word for override in overrides for word in ("--override", override)]
    done = barnabas("server-start", str(path), *words)
    assert done.returncode == 1, done
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line.removeprefix("barnabas: ")


def test_version_and_usage() -> None:
    assert barnabas("--version").stdout == f"barnabas {version()}\n"
    for wrong in ((), ("server-start",), ("server-stop",), ("server-start", "a.properties", "--overide", "a=b")):
        done = barnabas(*wrong)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("usage: barnabas")


@pytest.fixture
def started(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "node")
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


def test_the_banner_tells_where_to_go(started: BrokerProcess) -> None:
    wait_until(lambda: "bootstrap server" in started.log_text, 10, "the banner, which comes after the first answers")
    lines = [line for line in started.log_text.splitlines() if not line.startswith("[")]
    cluster = re.search(r"cluster\.id=(\S+)", (started.data_dir / "meta.properties").read_text())
    assert cluster is not None
    assert lines[0] == f"Barnabas {version()}, node 1 of cluster {cluster.group(1)}"
    assert lines[1].endswith(" broker, controller")
    assert f"PLAINTEXT://{started.bootstrap}, CONTROLLER://127.0.0.1:" in lines[2]
    assert lines[3].endswith(f" {started.data_dir}")
    assert lines[4].endswith(f" bootstrap server {started.bootstrap}")
    assert len(lines) == 5


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_gracefully(started: BrokerProcess, how: signal.Signals) -> None:
    producer = KafkaProducer(bootstrap_servers=started.bootstrap)
    producer.send("stopped", b"record").get(20)
    mark = started.data_dir / ".kafka_cleanshutdown"
    assert not mark.exists()
    process, started.process = started.process, None
    assert process is not None
    process.send_signal(how)
    assert process.wait(20) == 0
    producer.close(timeout=0)
    assert mark.exists()
    recovery_points = (started.data_dir / "recovery-point-offset-checkpoint").read_text()
    assert "stopped 0 1" in recovery_points.splitlines(), "not everything was synced"
    started.start()
    assert "stopped-0: recovering" not in started.log_text, "what was stopped cleanly needs no recovery"


WRONG_LINES = {
    "log.retention.hours=soon": ("log.retention.hours", "soon", "whole number"),
    "num.partitions : 0": ("num.partitions", "0", "at least 1"),
    "compression.type brotli": ("compression.type", "brotli", "zstd"),
    "log.segment.bytes=\\\n    12": ("log.segment.bytes", "12", "at least 1048576"),
    "auto.create.topics.enable=perhaps": ("auto.create.topics.enable", "perhaps", "true"),
    "max.connections.per.ip.overrides=host": ("max.connections.per.ip.overrides", "host"),
    "message.max.bytes=\\u00": ("\\u00", "four hexadecimal digits"),
}


@pytest.mark.parametrize("line", WRONG_LINES)
def test_a_wrong_value_is_named_with_its_file_and_line(properties: Path, line: str) -> None:
    before = properties.read_text()
    properties.write_text(f"{before}# a comment\n\n{line}\n")
    said = refusal(properties)
    assert said.startswith(f"{properties}, line {before.count(chr(10)) + 3}: "), said
    for words in WRONG_LINES[line]:
        assert words in said


def test_a_wrong_override_is_named(properties: Path) -> None:
    said = refusal(properties, "message.max.bytes=much")
    assert said.startswith("--override: ") and "message.max.bytes" in said and "much" in said
    assert "name=value" in refusal(properties, "message.max.bytes")


def test_a_missing_file_and_a_missing_setting(tmp_path: Path) -> None:
    missing = tmp_path / "none.properties"
    assert str(missing) in refusal(missing)
    empty = tmp_path / "empty.properties"
    empty.write_text("# nothing\n")
    assert "process.roles" in refusal(empty)


def test_an_address_in_use_and_one_of_another_machine(properties: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listeners = f"PLAINTEXT://127.0.0.1:{taken.getsockname()[1]},CONTROLLER://127.0.0.1:0"
        said = refusal(properties, f"listeners={listeners}")
    assert "listeners" in said and str(taken) not in said and "in use" in said
    said = refusal(properties, "listeners=PLAINTEXT://192.0.2.1:9092,CONTROLLER://127.0.0.1:0")
    assert "192.0.2.1" in said and "listeners" in said


def test_directories_that_cannot_be_used(properties: Path, started: BrokerProcess, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for place in (file, file / "below", Path("/proc/barnabas")):
        said = refusal(properties, f"log.dirs={place}")
        assert str(place) in said and "log.dirs" in said
    said = refusal(properties, f"log.dirs={started.data_dir}")
    assert "another broker" in said and str(started.data_dir) in said
    started.stop()
    said = refusal(properties, f"log.dirs={started.data_dir}", "node.id=7")
    assert "node.id" in said and str(started.data_dir / "meta.properties") in said


def test_settings_without_effect_are_warned_of(tmp_path: Path) -> None:
    extra = {"no.such.setting": "1", "background.threads": "4", "num.partitions": "2"}
    broker = BrokerProcess(tmp_path, extra=extra, overrides={"metrics.num.samples": "2"})
    try:
        broker.start()
        warnings = [line for line in broker.log_text.splitlines() if "WARNING" in line]
        lines = broker.properties_path.read_text().splitlines()
        place = f"{broker.properties_path}, line {lines.index('no.such.setting=1') + 1}"
        assert any(f"{place}: unknown setting no.such.setting" in line for line in warnings)
        for name in ("background.threads", "metrics.num.samples"):
            assert any(f"{name} is a Kafka setting that Barnabas does not act on yet" in line for line in warnings)
        assert not any("num.partitions" in line for line in warnings)
        broker.stop()
    finally:
        broker.close()
