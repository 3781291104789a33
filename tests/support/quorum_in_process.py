"""Several controllers in one process, on disks that can fail, over a network that can be cut.

Every message is encoded and decoded as on the wire; only sockets are missing. So faults of the disk and of the network
can be had exactly when a test wants them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

from support.fake_disk import FakeDisk

from cli.main import main as barnabas
from config.broker import BrokerConfig
from controller.controller import Controller
from controller.raft_calls import PeerGone, PeerUnavailable
from controller.storage_format import ensure_formatted
from protocol.messages import response_class
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse, SupportedFeatureKey
from protocol.schema import Message
from protocol.uuids import Uuid

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
FAST = {  # but not so fast that a busy machine deposes leaders
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.election.backoff.max.ms": "100",
    "controller.quorum.request.timeout.ms": "1000",
    "metadata.max.idle.interval.ms": "0",
}


class Network:
    """Who reaches whom. A node that is not there refuses, one that is cut off does not answer."""

    def __init__(self) -> None:
        self.nodes: dict[int, Controller] = {}
        self.cut: set[tuple[int, int]] = set()

    def isolate(self, node_id: int, others: Iterable[int]) -> None:
        for other in others:
            self.cut |= {(node_id, other), (other, node_id)}

    def heal(self) -> None:
        self.cut.clear()


class _Peers:
    def __init__(self, network: Network, node_id: int) -> None:
        self._network = network
        self._node_id = node_id

    async def call(self, host: str, port: int, request: Message, timeout_ms: float) -> Message:
        target = port - 20_000
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._pass(self._node_id, target)
                controller = self._network.nodes.get(target)
                if controller is None:
                    raise PeerGone(f"nobody at {port}")
                if isinstance(request, ApiVersionsRequest):
                    feature = SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
                    return ApiVersionsResponse(supported_features=[feature])
                version = request.MAX_VERSION
                received = type(request).decode(request.encode(version), version)
                answer = await controller.serve_raft(received, "CONTROLLER")
                await self._pass(target, self._node_id)
                data = b"".join(
                    part if isinstance(part, bytes) else bytes(part.read() if hasattr(part, "read") else part)
                    for part in answer.encode_parts(version)
                )
                return response_class(request.API_KEY).decode(data, version, 0)
        except TimeoutError:
            raise PeerUnavailable("timed out") from None

    async def _pass(self, source: int, target: int) -> None:
        await asyncio.sleep(0)
        while (source, target) in self._network.cut:  # noqa: ASYNC110 - until the caller's time is up
            await asyncio.sleep(0.01)


class InProcessQuorum:
    """`joining` nodes are formatted without a quorum: they find the others and ask to be let in."""

    def __init__(
        self, directory: Path, count: int = 3, *, joining: int = 0, static: bool = False, **settings: str
    ) -> None:
        self.network = Network()
        self.disks: dict[int, FakeDisk] = {}
        self._directory = directory
        self._settings = {**FAST, **{name.replace("_", "."): value for name, value in settings.items()}}
        self._static = static
        self._voters = list(range(1, count + 1))
        self._ids = list(range(1, count + joining + 1))
        directories = {node_id: Uuid.random() for node_id in self._ids}
        initial = ",".join(f"{i}@127.0.0.1:{20_000 + i}:{directories[i]}" for i in self._voters)
        for node_id in self._ids:
            home = directory / f"node{node_id}"
            home.mkdir()
            file = directory / f"{node_id}.properties"
            file.write_text("".join(f"{name}={value}\n" for name, value in self._properties(node_id).items()))
            flags = ["--initial-controllers", initial] if node_id in self._voters else ["--no-initial-controllers"]
            arguments = ["--cluster-id", CLUSTER_ID, "--config", str(file), *([] if static else flags)]
            assert barnabas(["storage", "format", *arguments]) == 0
            self.disks[node_id] = FakeDisk(home)

    def data(self, node_id: int) -> Path:
        return self._directory / f"node{node_id}" / "data"

    def metadata(self, node_id: int) -> Path:
        return self.data(node_id) / "__cluster_metadata-0"

    def _properties(self, node_id: int) -> dict[str, str]:
        return {
            "process.roles": "controller",
            "node.id": str(node_id),
            "listeners": f"CONTROLLER://127.0.0.1:{20_000 + node_id}",
            "controller.listener.names": "CONTROLLER",
            **self._quorum(),
            "log.dirs": str(self.data(node_id)),
            **self._settings,
        }

    def _quorum(self) -> dict[str, str]:
        if self._static:
            voters = ",".join(f"{i}@127.0.0.1:{20_000 + i}" for i in self._voters)
            return {"controller.quorum.voters": voters}
        servers = ",".join(f"127.0.0.1:{20_000 + i}" for i in self._ids)
        return {"controller.quorum.bootstrap.servers": servers}

    async def start(self, *node_ids: int) -> None:
        for node_id in node_ids or self._ids:
            config = BrokerConfig.from_map(self._properties(node_id))
            controller = Controller(
                config,
                ensure_formatted(config),
                disk=self.disks[node_id],
                random=Random(node_id),
                peers=_Peers(self.network, node_id),
            )
            await controller.start()
            self.network.nodes[node_id] = controller

    async def stop(self, *node_ids: int) -> None:
        for node_id in node_ids or list(self.network.nodes):
            controller = self.network.nodes.pop(node_id)
            await controller.shutdown()

    async def crash(self, node_id: int) -> None:
        """Power failure: what was not synced is gone."""
        controller = self.network.nodes.pop(node_id)
        self.disks[node_id].crash()
        await controller.shutdown()

    async def leader(self, *, other_than: int = -1, timeout_s: float = 10) -> Controller:
        def found() -> Controller | None:
            return next((c for i, c in self.network.nodes.items() if c.is_active and i != other_than), None)

        await until(lambda: found() is not None, timeout_s)
        controller = found()
        assert controller is not None
        return controller


async def until(condition: Callable[[], bool], timeout_s: float = 10) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - conditions of many parts, none of which tells
            await asyncio.sleep(0.005)
