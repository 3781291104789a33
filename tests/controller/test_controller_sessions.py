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
    """A broker's process as the controller sees it: it has an address, and listens there once it serves.

    One that is started `instead_of` another has its address, because that is dead; a `clone` announces the same one.
    """

    def __init__(
        self,
        controller: Controller,
        *,
        instead_of: Process | None = None,
        clone: Process | None = None,
        listeners: tuple[str, ...] = ("PLAINTEXT",),
    ) -> None:
        self.controller = controller
        self.incarnation_id = Uuid.random()
        self.epoch = -1
        self.listeners = listeners
        wanted = (0,) * len(listeners) if instead_of is None else instead_of.ports
        self.sockets = [_bound(port) for port in wanted] if clone is None else []
        self.ports = tuple(one.getsockname()[1] for one in self.sockets) if clone is None else clone.ports

    async def register(self) -> ErrorCode:
        request = BrokerRegistrationRequest(
            broker_id=BROKER,
            cluster_id=self.controller.cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=[
                Listener(name=name, host="127.0.0.1", port=port, security_protocol=0)
                for name, port in zip(self.listeners, self.ports, strict=True)
            ],
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
        for one in self.sockets:
            one.listen()
        assert await self.beat() is ErrorCode.NONE and not is_fenced(self.controller)

    def die(self) -> None:
        for one in self.sockets:
            one.close()


def _bound(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    return made


async def looked(controller: Controller) -> None:
    """Until nobody is being looked for any more."""
    await until(lambda: not controller.probes._under_way)


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


async def test_a_second_process_with_the_id_of_a_live_one_is_refused(tmp_path: Path) -> None:
    """The copy of a machine announces the same addresses and has the same log directories: ports and locks of two hosts
    say nothing about each other. It used to be taken for the same broker, started again."""
    controller = await started(tmp_path, register=False, broker_session_timeout_ms=NEVER_MS)
    first = Process(controller)
    await first.serve()
    copy = Process(controller, clone=first)
    for _ in range(2):
        assert await copy.register() is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert controller.probes._under_way, "it is looked whether the first one lives"
        await looked(controller)
    assert not is_fenced(controller) and await first.beat() is ErrorCode.NONE
    assert controller.image.brokers[BROKER].incarnation_id == first.incarnation_id
    await controller.shutdown()
    first.die()


async def test_a_second_process_is_refused_while_the_first_one_starts(tmp_path: Path) -> None:
    """It opens its logs and does not listen yet, so that nobody answers there proves nothing."""
    settings = {"broker_session_timeout_ms": NEVER_MS, "broker_heartbeat_interval_ms": "100"}
    controller = await started(tmp_path, register=False, **settings)
    first = Process(controller)
    assert await first.register() is ErrorCode.NONE and await first.beat(fence=True) is ErrorCode.NONE
    late = Process(controller, clone=first)  # or the registration of its predecessor, on its way for long
    assert await late.register() is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    await until(lambda: controller.heartbeats.next_suspicion_ms() is None)  # a heartbeat is late, too
    controller.probes.on_fetch("first:1", BROKER)
    controller.probes.on_fetch("late:1", BROKER)
    controller.probes.on_connection_closed("late:1")  # it gives up
    await looked(controller)
    assert await late.register() is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    await first.serve()
    await controller.shutdown()
    first.die()


@pytest.mark.parametrize("listeners", [("PLAINTEXT",), ("PLAINTEXT", "EXTERNAL"), ("INTERNAL", "EXTERNAL")])
async def test_a_broker_that_is_started_again_waits_for_a_knock_not_for_the_session(
    tmp_path: Path, listeners: tuple[str, ...]
) -> None:
    """The new process has the addresses, and listens there only once it is registered."""
    controller = await started(tmp_path, register=False, broker_session_timeout_ms=NEVER_MS)
    first = Process(controller, listeners=listeners)
    await first.serve()
    first.die()
    again = Process(controller, instead_of=first, listeners=listeners)
    assert await again.register() is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    await until(lambda: is_fenced(controller))
    await again.serve()
    assert await first.beat() is ErrorCode.STALE_BROKER_EPOCH
    await controller.shutdown()
    again.die()


async def test_one_that_dies_before_it_listened_is_missed_when_its_connection_breaks(tmp_path: Path) -> None:
    controller = await started(tmp_path, register=False, broker_session_timeout_ms=NEVER_MS)
    first = Process(controller)
    assert await first.register() is ErrorCode.NONE and await first.beat(fence=True) is ErrorCode.NONE
    controller.probes.on_fetch("first:1", BROKER)
    first.die()
    controller.probes.on_connection_closed("first:1")
    await looked(controller)
    again = Process(controller, instead_of=first)
    await again.serve()
    await controller.shutdown()
    again.die()


async def test_a_broker_lives_as_long_as_one_of_its_listeners_answers(tmp_path: Path) -> None:
    """The controller does not know which of these brokers use among themselves; the others may be for elsewhere."""
    controller = await started(tmp_path, register=False, broker_session_timeout_ms=NEVER_MS)
    first = Process(controller, listeners=("INTERNAL", "EXTERNAL"))
    await first.serve()
    first.sockets[1].close()
    copy = Process(controller, clone=first, listeners=first.listeners)
    for _ in range(2):
        assert await copy.register() is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        await looked(controller)
    assert not is_fenced(controller) and await first.beat() is ErrorCode.NONE
    await controller.shutdown()
    first.die()


async def test_the_place_of_a_broker_that_may_stop_is_free(tmp_path: Path) -> None:
    controller = await started(tmp_path, register=False, broker_session_timeout_ms=NEVER_MS)
    first = Process(controller)
    await first.serve()
    answer = await controller.on_broker_heartbeat(heartbeat(controller, first.epoch, BROKER, shut_down=True))
    assert answer.should_shut_down
    elsewhere = Process(controller)
    await elsewhere.serve()
    await controller.shutdown()
    first.die()
    elsewhere.die()
