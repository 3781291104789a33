"""Fixtures that every test directory shares; what they start lives in tests/support/."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from py4j.java_gateway import JavaGateway
from support.anchor import AnchorKafka
from support.broker_process import BrokerProcess
from support.jvm import Jvm, open_log
from support.report import pytest_terminal_summary, report  # noqa: F401 - a hook and a fixture
from support.tools import StockTools

settings.register_profile("unhurried", deadline=None)  # a busy machine is no failure
settings.load_profile("unhurried")


TESTS = Path(__file__).parent
LONGEST = ("pipeline", "replication")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where several processes share the tests, file by file, the directories with the longest ones begin."""
    items.sort(key=lambda item: item.path.relative_to(TESTS).parts[0] not in LONGEST)


@pytest.fixture(scope="session")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaGateway]:
    """The one JVM with Apache Kafka's classes: `jvm.jvm.org.apache.kafka...`."""
    with open_log(tmp_path_factory.mktemp("jvm")) as log:
        machine = Jvm(log)
        try:
            yield machine.gateway
        finally:
            machine.close()


@pytest.fixture(scope="session")
def stock_tools(jvm: JavaGateway) -> StockTools:
    """Apache Kafka's command-line tools, run inside the shared JVM."""
    return StockTools(jvm)


@pytest.fixture(scope="session")
def anchor(stock_tools: StockTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnchorKafka]:
    """A running Apache Kafka 4.3.1, shared by the whole session."""
    server = AnchorKafka(tmp_path_factory.mktemp("anchor"), tools=stock_tools)
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A running Barnabas, shared by the whole session: tests use topics of their own. It must stop
    gracefully.
    """
    server = BrokerProcess(tmp_path_factory.mktemp("broker"))
    try:
        server.start()
        yield server
        server.stop()
    finally:
        server.close()


@pytest.fixture
def fresh_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A Barnabas of the test's own, already running; the test may stop, kill and restart it."""
    server = BrokerProcess(tmp_path / "broker")
    try:
        server.start()
        yield server
    finally:
        server.close()
