"""The client tests run against Barnabas and against Apache Kafka: what they expect is what Kafka does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from kafka import KafkaAdminClient
from support.scenario import Server

_numbers = itertools.count()


@pytest.fixture(params=["barnabas", "apache-kafka"])
def server(request: pytest.FixtureRequest) -> Server:
    running: Server = request.getfixturevalue("broker" if request.param == "barnabas" else "anchor")
    return running


@pytest.fixture
def admin(server: Server) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=server.bootstrap)
    yield client
    client.close()


@pytest.fixture
def topic(admin: KafkaAdminClient) -> str:
    """A topic of the test's own, with one partition."""
    name = f"client-{next(_numbers)}"
    admin.create_topics([name], wait_for_metadata=True)
    return name
