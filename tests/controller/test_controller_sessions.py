"""Brokers' sessions on a running controller: their end counts once it is in the log; knocking tells who died."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from support.fake_disk import FakeDisk
from support.metadata import heartbeat, started
from support.quorum_in_process import until

from controller.controller import Controller
from controller.features import SUPPORTED_FEATURES
from protocol.errors import ErrorCode
from protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from protocol.uuids import Uuid

BROKER = 7
NEVER_MS = "600000"  # a session that does not end by itself within a test


class Process:
    """A broker's process as the controller sees it: it has an address, where it listens once it serves."""

    def __init__(self, controller: Controller, *, instead_of: Process | None = None) -> None:
        self.controller = controller
        self.incarnation_id = Uuid.random()
        self.epoch = -1
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(("127.0.0.1", 0 if instead_of is None else instead_of.port))
        self.port = self.socket.getsockname()[1]

    async def register(self) -> ErrorCode:
        request = BrokerRegistrationRequest(
            broker_id=BROKER,
            cluster_id=self.controller.cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=self.port, security_protocol=0)],
            features=[
                Feature(name=name, min_supported_version=levels.min_version, max_supported_version=levels.max_version)
                for name, levels in SUPPORTED_FEATURES.items()
            ],
            log_dirs=list(self.controller.node.directory_ids.values()),
        )
        answer = await self.controller.on_broker_registration(request)
        self.epoch = answer.broker_epoch
        return ErrorCode(answer.error_code)

    async def beat(self, *, fence: bool = False) -> ErrorCode:
        request = heartbeat(self.controller, self.epoch, BROKER, fence=fence)
        return ErrorCode((await self.controller.on_broker_heartbeat(request)).error_code)

    async def serve(self) -> None:
        assert await self.register() is ErrorCode.NONE
        self.socket.listen()
        assert await self.beat() is ErrorCode.NONE and not is_fenced(self.controller)

    def die(self) -> None:
        self.socket.close()


def is_fenced(controller: Controller) -> bool:
    return controller.image.brokers[BROKER].fenced


async def refused_twice(caplog: pytest.LogCaptureFixture) -> None:
    """Until the log has refused two changes of the controller's own. They are not made all the time."""
    loop, times = asyncio.get_running_loop(), [0.0]

    def count() -> int:
        found = sum("of the controller's own could not be made" in record.message for record in caplog.records)
        if found >= len(times):
            times.append(loop.time())
        return found

    await until(lambda: count() >= 2)
    assert count() == 2 and times[2] - times[1] > 0.8


async def test_a_session_that_ends_while_the_disk_is_full_is_not_forgotten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It used to be over before the fencing was in the log: the dead broker led on for ever."""
    disk = FakeDisk(tmp_path)
    settings = {"broker_session_timeout_ms": "300", "broker_heartbeat_interval_ms": "100"}
    controller = await started(tmp_path / "data", disk=disk, register=False, **settings)
    silent = Process(controller)  # its kernel takes connections: only its silence tells
    await silent.serve()
    disk.full = True
    await refused_twice(caplog)
    assert not is_fenced(controller)
    disk.full = False
    await until(lambda: is_fenced(controller))
    await controller.shutdown()
    silent.die()


async def test_a_death_that_is_noticed_while_the_disk_is_full_is_not_forgotten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FakeDisk(tmp_path)
    controller = await started(tmp_path / "data", disk=disk, register=False, broker_session_timeout_ms=NEVER_MS)
    dead = Process(controller)
    await dead.serve()
    disk.full = True
    dead.die()
    controller.probes.suspect(BROKER)
    await refused_twice(caplog)
    assert not is_fenced(controller)
    disk.full = False
    await until(lambda: is_fenced(controller))
    await controller.shutdown()


async def test_a_stop_that_the_full_disk_refused_is_not_counted_as_one(tmp_path: Path) -> None:
    """The broker that was not allowed to stop, and died then, is fenced at the end of its session."""
    disk = FakeDisk(tmp_path)
    settings = {"broker_session_timeout_ms": "300", "broker_heartbeat_interval_ms": "100"}
    controller = await started(tmp_path / "data", disk=disk, register=False, **settings)
    stopping = Process(controller)
    await stopping.serve()
    disk.full = True
    answer = await controller.on_broker_heartbeat(heartbeat(controller, stopping.epoch, BROKER, shut_down=True))
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR and not answer.should_shut_down
    disk.full = False
    await until(lambda: is_fenced(controller))
    await controller.shutdown()
    stopping.die()
