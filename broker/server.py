"""A node: storage, controller, replicas and network, put together and taken apart in order.

Start-up: format or check the directories, bind the addresses, replay the metadata, open the logs, register,
then accept clients. Shutdown is the reverse: stop accepting, finish what is in flight, tell the controller,
sync and close the logs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping

from broker.api import HANDLERS, HandlerEntry
from broker.coordinator.service import GroupService
from broker.fetch_sessions import FetchSessionCache
from broker.handlers import register_all
from broker.network.server import SocketServer
from broker.network.settings import NetworkSettings
from broker.producer_ids import ProducerIds
from broker.replicas import ReplicaManager
from config.addresses import Listener
from config.broker import BrokerConfig
from config.topic import LogConfig
from controller.controller import Controller
from controller.delta import MetadataError
from controller.endpoints import broker_endpoints
from controller.image import RESOURCE_BROKER, Endpoint, ImageDelta, MetadataImage
from controller.storage_format import FormatError, ensure_formatted
from protocol.errors import ApiError
from protocol.messages import CONTROLLER_APIS
from storage.errors import CorruptLog, StorageError
from storage.log_directory import LogDirectory
from storage.log_manager import LogManager

log = logging.getLogger("broker.server")

# How long requests in flight may take to finish when the node stops.
DRAIN_TIMEOUT_S = 5.0

# A follower's fetch and the Raft RPCs of the metadata quorum come with the quorum of several controllers.
_FETCH = 1


class StartError(Exception):
    """Why the node cannot start, in a sentence for the person who started it."""


class Broker:
    """What handlers reach through their context. Its parts are set by `start` and live until `stop`."""

    logs: LogManager
    controller: Controller
    replicas: ReplicaManager
    groups: GroupService
    producer_ids: ProducerIds
    cluster_id: str

    def __init__(self, config: BrokerConfig, give_up: Callable[[], None] = lambda: None) -> None:
        """`give_up` is called when the node can go on with nothing: whoever runs it should stop it."""
        self.config = config
        self.has_given_up = False
        self._give_up = give_up
        self.node_id = config.node_id
        self.fetch_sessions = FetchSessionCache(config.max_incremental_fetch_session_cache_slots)
        self._servers: list[SocketServer] = []
        self._started: list[str] = []
        self._telling: asyncio.Task[None] | None = None

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    @property
    def bound_listeners(self) -> list[Listener]:
        return [listener for server in self._servers for listener in server.bound]

    def client_address(self) -> str:
        """Where to point a client on this machine, or wherever advertised.listeners says."""
        listener = (self.config.advertised_listeners or self.bound_listeners)[0]
        host = listener.host if listener.host not in ("", "0.0.0.0", "::") else "localhost"
        return f"{host}:{listener.port}"

    async def start(self) -> None:
        register_all()
        try:
            directories = ensure_formatted(self.config)
            self.cluster_id = directories.cluster_id
            self._metadata_directory = directories.metadata_directory
            self._bind()
            self.logs = LogManager(self.config)
            self.logs.open_directories()
            self.controller = Controller(
                self.config, directories, log_dir=self.logs.directory_at(directories.metadata_directory)
            )
            await self.controller.start()
            self._started.append("controller")
            await self.logs.start(self._log_config)
            self._started.append("logs")
        except (FormatError, StorageError, MetadataError, CorruptLog) as error:
            raise StartError(str(error)) from error
        self.replicas = ReplicaManager(self.config, self.node_id, self.logs)
        self.producer_ids = ProducerIds(self.controller.allocate_producer_ids)
        self.replicas.load(self.image)
        self.logs.on_directory_failure = self._on_directory_failure
        self.groups = GroupService(self.config, self.node_id, self.replicas, self.image)
        self._started.append("groups")
        self.controller.subscribe(self._on_image)
        await self.controller.register_broker(
            endpoints=self._registered_endpoints(), previous_epoch=self.logs.previous_broker_epoch
        )
        await self.controller.unfence_broker()
        self._tell_directories()
        for server in self._servers:
            server.start()

    def _on_directory_failure(self, directory: LogDirectory) -> None:
        """Without metadata, or without any directory, a node only stands in the way: Kafka's stops, too."""
        self.replicas.on_directory_failure(directory)
        metadata_failed = directory is self.logs.directory_at(self._metadata_directory)
        if metadata_failed or not any(one.online for one in self.logs.directories):
            what = (
                f"the metadata log's directory {directory.path} has" if metadata_failed else "all log directories have"
            )
            log.error("stopping: %s failed", what)
            self.has_given_up = True
            self._give_up()

    def _registered_endpoints(self) -> list[Endpoint]:
        """The endpoints of the configuration, with the ports that were bound where it says 0."""
        ports = {listener.name: listener.port for listener in self.bound_listeners}
        return [
            endpoint if endpoint.port else endpoint._replace(port=ports[endpoint.name])
            for endpoint in broker_endpoints(self.config)
        ]

    def _bind(self) -> None:
        settings = network_settings(self.config)
        controller_names = self.config.controller_listener_names
        for_brokers = [one for one in self.config.listeners if one.name not in controller_names]
        for_controllers = [one for one in self.config.listeners if one.name in controller_names]
        controller_handlers = {
            key: entry for key, entry in HANDLERS.items() if key in CONTROLLER_APIS and key != _FETCH
        }
        groups: list[tuple[list[Listener], Mapping[int, HandlerEntry]]] = [
            (for_brokers, HANDLERS),
            (for_controllers, controller_handlers),
        ]
        for listeners, handlers in groups:
            if listeners:
                server = SocketServer(self, listeners, settings, handlers=handlers)
                server.bind()
                self._servers.append(server)

    def _log_config(self, topic: str) -> LogConfig:
        return LogConfig.resolve(self.image.topic_configs(topic), self.config)

    def _on_image(self, image: MetadataImage, delta: ImageDelta) -> None:
        if any(resource_type == RESOURCE_BROKER for resource_type, _ in delta.changed_configs):
            self.config = self.controller.effective_config
            self.replicas.on_broker_config(self.config)
            self.groups.on_config(self.config)
        self.replicas.on_image(image, delta)
        self.groups.on_image(image, delta)
        self._tell_directories()

    def _tell_directories(self) -> None:
        """With several log directories the broker chooses one, and the controller learns of it afterwards."""
        if self.replicas.misplaced and self._telling is None:
            self._telling = asyncio.ensure_future(self._assign_directories())

    async def _assign_directories(self) -> None:
        try:
            while self.replicas.misplaced:
                misplaced, self.replicas.misplaced = self.replicas.misplaced, {}
                await self.controller.assign_directories(misplaced)
        except ApiError as error:  # told again at the next start; nothing but the metadata's view depends on it
            log.warning("the controller did not take the directories of new partitions: %s", error)
        finally:
            self._telling = None

    async def stop(self) -> None:
        """Undoes what `start` got done, however far that was: in-flight requests first, the logs last."""
        for server in self._servers:
            server.stop_accepting()
        if "groups" in self._started:
            self.groups.stop_accepting()
        for server in self._servers:
            await server.shutdown(DRAIN_TIMEOUT_S)
        if self._telling is not None:
            await self._telling
        if "groups" in self._started:
            await self.groups.shutdown()
        if "logs" in self._started:
            epoch = self.controller.broker_epoch
            with contextlib.suppress(ApiError):  # the metadata log is broken; its own error was logged
                await self.controller.begin_controlled_shutdown()
            await self.logs.shutdown(epoch)
        if "controller" in self._started:
            await self.controller.shutdown()


def network_settings(config: BrokerConfig) -> NetworkSettings:
    """Socket buffers are left to the kernel unless someone sets them: it lets them grow with a busy connection, while
    Kafka's default of 100 KB costs a fetch of a megabyte ten wake-ups."""
    return NetworkSettings(
        request_max_bytes=config.socket_request_max_bytes,
        send_buffer_bytes=config.socket_send_buffer_bytes if "socket.send.buffer.bytes" in config.raw else -1,
        receive_buffer_bytes=config.socket_receive_buffer_bytes if "socket.receive.buffer.bytes" in config.raw else -1,
        listen_backlog=config.socket_listen_backlog_size,
        max_connections=config.max_connections,
        max_connections_per_ip=config.max_connections_per_ip,
        max_connections_overrides=config.max_connections_per_ip_overrides,
        max_idle_ms=config.connections_max_idle_ms,
        queued_max_bytes=config.queued_max_request_bytes,
    )
