"""A silent broker's process: is it still there?

A session ends after ``broker.session.timeout.ms`` of silence, nine seconds by default, in which nobody leads what the
broker led. But a process that died leaves traces: its connections break, and nobody listens any more where it did. So
the active controller knocks at the broker's door as soon as it falls silent, or when another process wants to be that
broker: mostly it is the same one, started again. Only a refused connection counts: a host that does not answer, a
process that hangs or a network that drops are for the session to decide. Fencing a broker that lives after all does no
harm but a moment's leave: its next heartbeat brings it back.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from controller.heartbeats import FENCE_AGAIN_MS, fence_dead
from controller.image import MetadataImage
from controller.outcome import Outcome

if TYPE_CHECKING:
    from controller.controller import Controller

_log = logging.getLogger(__name__)

TIMEOUT_S: Final = 2.0  # a live process is connected to by its kernel, however busy it is
RETRIES_S: Final = (0.0, 0.05, 0.25, 1.0)
"""Waits before each knock. A process that dies closes its sockets one after the other; the door may be the last."""


class BrokerProbes:
    """Owned by its controller; works while that is active. ``listener`` is the one that brokers use among themselves:
    what it announces must be reachable from other nodes. Where they have none of that name, as the controller alone may
    not know which it is, all doors must be closed."""

    def __init__(self, controller: Controller, listener: str) -> None:
        self._controller = controller
        self._listener = listener
        self._under_way: dict[int, asyncio.Task[None]] = {}
        self._peers: dict[str, int] = {}

    def on_fetch(self, peer: str, node_id: int) -> None:
        """A node follows the metadata log over this connection, and will as long as it lives."""
        self._peers[peer] = node_id

    def on_connection_closed(self, peer: str) -> None:
        node_id = self._peers.pop(peer, None)
        if node_id is not None and node_id not in self._peers.values():  # else it, or another process, is back
            self.suspect(node_id)

    def suspect(self, broker_id: int) -> None:
        """Look whether the broker lives; nothing happens if it does, or if this node is not the active controller."""
        controller = self._controller
        broker = controller.image.brokers.get(broker_id)
        seen = controller.heartbeats.contact(broker_id)
        if not controller.is_active or broker is None or seen is None or broker_id in self._under_way:
            return
        own = broker.endpoints.get(self._listener)
        doors = [(door.host, door.port) for door in (broker.endpoints.values() if own is None else (own,))]
        if not doors or broker.incarnation_id == controller.incarnation_id:
            return
        task = asyncio.get_running_loop().create_task(
            self._probe(broker_id, doors, seen), name=f"probe of broker {broker_id}"
        )
        self._under_way[broker_id] = task
        task.add_done_callback(lambda _: self._under_way.pop(broker_id, None))

    def suspect_unless_starting(self, broker_id: int) -> None:
        """The same for signs that prove nothing: a heartbeat is missing, another process registers with this id.

        A broker listens before it is unfenced: an unfenced one that does not listen is dead, one that starts may live.
        """
        broker = self._controller.image.brokers.get(broker_id)
        if broker is not None and not broker.fenced:
            self.suspect(broker_id)

    async def _probe(self, broker_id: int, doors: list[tuple[str, int]], seen: tuple[int, int]) -> None:
        controller = self._controller

        def decide(image: MetadataImage) -> Outcome[bool]:
            return fence_dead(
                image, broker_id, seen, config=controller.appended_config, heartbeats=controller.heartbeats
            )

        for wait_s in RETRIES_S:
            await asyncio.sleep(wait_s)
            if controller.heartbeats.contact(broker_id) != seen:
                return
            if not all(await asyncio.gather(*(_is_refused(*door) for door in doors))):
                continue
            while (fenced := controller.change_unasked(decide)) is None and controller.is_active:  # noqa: ASYNC110
                await asyncio.sleep(FENCE_AGAIN_MS / 1000)
            if fenced:
                controller.heartbeats.end_session(broker_id, seen[0])
                places = " or ".join(f"{host}:{port}" for host, port in doors)
                _log.warning("Broker %d is fenced: nobody listens at %s any more", broker_id, places)
            return

    def stop(self) -> None:
        for task in self._under_way.values():
            task.cancel()


async def _is_refused(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return False
