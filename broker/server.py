"""A node: controller, storage, replicas and network, put together by its roles and taken apart in order.

Start-up: format or check the directories, bind the addresses, join the metadata quorum. A broker then waits until it
has read the metadata, registers, opens its logs, takes its partitions, and is unfenced; only then are clients answered.
Shutdown is the reverse: hand over what it leads, stop accepting, finish what is in flight, sync and close the logs,
leave the quorum.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping

from broker.api import CONTROLLER_HANDLERS, HANDLERS, HandlerEntry
from broker.controller_channel import ControllerChannel
from broker.controller_registration import ControllerRegistration
from broker.coordinator.service import GroupService
from broker.directory_assignment import DirectoryAssignment
from broker.fetch_sessions import FetchSessionCache
from broker.forwarding import FORWARDED, Forwarding, forwarded
from broker.handlers import register_all
from broker.lifecycle import BrokerLifecycle, RegistrationFailed
from broker.network.client import NodeClients
from broker.network.routes import Router
from broker.network.server import SocketServer
from broker.network.settings import NetworkSettings
from broker.producer_ids import ProducerIds
from broker.quorum_peers import QuorumPeers
from broker.replicas import ReplicaManager
from broker.replication.service import ReplicationService
from config.addresses import Listener
from config.broker import BrokerConfig
from config.topic import LogConfig
from controller.controller import Controller
from controller.delta import MetadataError
from controller.endpoints import broker_endpoints, controller_endpoints
from controller.image import RESOURCE_BROKER, Endpoint, ImageDelta, MetadataImage
from controller.storage_format import FormatError, NodeDirectories, ensure_formatted
from protocol.messages import CONTROLLER_APIS, CONTROLLER_ONLY_APIS
from protocol.messages.fetch import FetchRequest
from protocol.uuids import Uuid
from storage.errors import CorruptLog, StorageError
from storage.log_directory import LogDirectory
from storage.log_manager import LogManager

log = logging.getLogger("broker.server")

# How long requests in flight may take to finish when the node stops.
DRAIN_TIMEOUT_S = 5.0
# How long a broker waits for the controller's consent to stop. With the quorum's majority gone it will not come.
SHUTDOWN_CONSENT_S = 5.0


class StartError(Exception):
    """Why the node cannot start, in a sentence for the person who started it."""


class Broker:
    """What handlers reach through their context. Its parts are set by `start` and live until `stop`.

    A node with the controller role alone has neither logs nor replicas nor groups: no API of its listener needs them.
    """

    logs: LogManager
    controller: Controller
    replicas: ReplicaManager
    groups: GroupService
    producer_ids: ProducerIds
    forwarding: Forwarding
    lifecycle: BrokerLifecycle
    controller_router: Router
    cluster_id: str

    def __init__(self, config: BrokerConfig, give_up: Callable[[], None] = lambda: None) -> None:
        """`give_up` is called when the node can go on with nothing: whoever runs it should stop it."""
        self.config = config
        self.has_given_up = False
        self._give_up = give_up
        self.node_id = config.node_id
        self.is_broker = "broker" in config.process_roles
        self.is_controller = "controller" in config.process_roles
        self.fetch_sessions = FetchSessionCache(config.max_incremental_fetch_session_cache_slots)
        self._broker_servers: list[SocketServer] = []
        self._controller_servers: list[SocketServer] = []
        self._clients = NodeClients(f"node-{config.node_id}")
        self._metadata_dir: LogDirectory | None = None
        self._registration: ControllerRegistration | None = None
        self._assignment: DirectoryAssignment | None = None
        self._replication: ReplicationService | None = None
        self._started: list[str] = []

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    @property
    def bound_listeners(self) -> list[Listener]:
        servers = [*self._broker_servers, *self._controller_servers]
        return [listener for server in servers for listener in server.bound]

    @property
    def log_directories(self) -> list[str]:
        return list(self._directories.directory_ids)

    def client_address(self) -> str:
        """Where to point a client on this machine, or wherever advertised.listeners says."""
        listener = (self.config.advertised_listeners or self.bound_listeners)[0]
        host = listener.host if listener.host not in ("", "0.0.0.0", "::") else "localhost"
        return f"{host}:{listener.port}"

    # Start

    async def start(self) -> None:
        register_all()
        try:
            self._directories = ensure_formatted(self.config)
            self.cluster_id = self._directories.cluster_id
            self._bind()
            await self._start_controller(self._directories)
            if self.is_broker:
                await self._start_broker()
        except (FormatError, StorageError, MetadataError, CorruptLog, RegistrationFailed) as error:
            raise StartError(str(error)) from error

    async def _start_controller(self, directories: NodeDirectories) -> None:
        self.logs = LogManager(self.config)
        if self.is_broker:
            self.logs.open_directories()
        metadata_dir = self.logs.directory_at(directories.metadata_directory)
        if metadata_dir is None:
            metadata_dir = self._metadata_dir = LogDirectory(directories.metadata_directory)
            metadata_dir.lock()
            metadata_dir.on_failure = self._told_of_failure(asyncio.get_running_loop())
        self.controller = Controller(
            self.config,
            directories,
            log_dir=metadata_dir,
            peers=QuorumPeers(self._clients),
            endpoints=self._with_bound_ports(controller_endpoints(self.config)) if self.is_controller else [],
        )
        channel = self._channel = ControllerChannel(self.controller, self._clients)
        self.forwarding = Forwarding(self, channel, self.config.request_timeout_ms)
        self._started.append("controller")
        await self.controller.start()
        for server in self._controller_servers:
            server.on_connection_closed = self.controller.probes.on_connection_closed
            server.start()
        if self.is_controller:
            self._registration = ControllerRegistration(self.controller, channel)
            self._registration.start()

    async def _start_broker(self) -> None:
        controller, channel, directories = self.controller, self._channel, self._directories.directory_ids
        self.lifecycle = BrokerLifecycle(
            self.config,
            controller,
            channel,
            offline_directories=self._offline_directories,
            cordoned_directories=self._cordoned_directories,
        )
        self._started.append("lifecycle")
        previous_epoch = self.logs.read_previous_broker_epoch()
        await self.lifecycle.register(
            self._with_bound_ports(broker_endpoints(self.config)), list(directories.values()), previous_epoch
        )
        # What the image does not show would be set aside as stray: nothing is opened before it is up to date.
        await controller.wait_until(self._knows_own_registration)
        self.config = self.logs.config = controller.effective_config
        await self.logs.start(self._log_config, self._assigned_directory)
        self._started.append("logs")
        self._replication = ReplicationService(
            self.config, self._clients, controller, channel, lambda: self.lifecycle.epoch
        )
        self._assignment = DirectoryAssignment(self.lifecycle, controller, channel)
        self.replicas = ReplicaManager(self.config, self.node_id, self.logs, self._replication, self._assignment.assign)
        self._assignment.on_assigned = self.replicas.mover.on_assigned
        self.producer_ids = ProducerIds(self.lifecycle.allocate_producer_ids)
        self.replicas.load(self.image)
        self._replication.start(self.replicas)
        self.logs.on_directory_failure = self._on_directory_failure
        self.groups = GroupService(self.config, self.node_id, self.replicas, self.image)
        self.replicas.on_late = self.groups.on_partition
        self._started.append("groups")
        controller.subscribe(self._on_image)
        for server in self._broker_servers:
            server.listen()
        await self.lifecycle.unfence()
        await controller.wait_until(self._is_unfenced)
        self._assignment.maybe_tell()
        for server in self._broker_servers:
            server.start()

    def _knows_own_registration(self) -> bool:
        registered = self.image.brokers.get(self.node_id)
        return registered is not None and registered.epoch >= self.lifecycle.epoch

    def _is_unfenced(self) -> bool:
        registered = self.image.brokers.get(self.node_id)
        return registered is not None and not registered.fenced

    def _told_of_failure(self, loop: asyncio.AbstractEventLoop) -> Callable[[LogDirectory], None]:
        """A failing sync tells from its thread."""

        def tell(directory: LogDirectory) -> None:
            loop.call_soon_threadsafe(self._on_directory_failure, directory)

        return tell

    def _on_directory_failure(self, directory: LogDirectory) -> None:
        """Without metadata, or without any directory, a node only stands in the way: Kafka's stops, too."""
        if "groups" in self._started:
            self.replicas.on_directory_failure(directory)
            self.lifecycle.beat_now()
        metadata_failed = directory is self._metadata_dir or (
            directory is self.logs.directory_at(self._directories.metadata_directory)
        )
        if metadata_failed or not any(one.online for one in self.logs.directories):
            what = (
                f"the metadata log's directory {directory.path} has" if metadata_failed else "all log directories have"
            )
            log.error("stopping: %s failed", what)
            self.has_given_up = True
            self._give_up()

    def _with_bound_ports(self, endpoints: list[Endpoint]) -> list[Endpoint]:
        """The endpoints of the configuration, with the ports that were bound where it says 0."""
        ports = {listener.name: listener.port for listener in self.bound_listeners}
        return [e if e.port else e._replace(port=ports[e.name]) for e in endpoints]

    def _bind(self) -> None:
        settings = network_settings(self.config)
        controller_names = self.config.controller_listener_names
        controller_handlers = handlers_of_controllers()
        self.controller_router = Router(controller_handlers)
        groups: list[tuple[list[Listener], Mapping[int, HandlerEntry], list[SocketServer]]] = [
            (
                [one for one in self.config.listeners if one.name not in controller_names],
                handlers_of_brokers(),
                self._broker_servers,
            ),
            (
                [one for one in self.config.listeners if one.name in controller_names],
                controller_handlers,
                self._controller_servers,
            ),
        ]
        for listeners, handlers, servers in groups:
            if listeners:
                server = SocketServer(self, listeners, settings, handlers=handlers)
                server.bind()
                servers.append(server)

    # While it runs

    def _log_config(self, topic: str) -> LogConfig:
        return LogConfig.resolve(self.image.topic_configs(topic), self.config)

    def _assigned_directory(self, topic: str, partition: int) -> Uuid | None:
        """Where the metadata has this node's replica."""
        found = self.image.topics_by_name.get(topic)
        image = None if found is None else found.partitions.get(partition)
        return None if image is None else image.directory_of(self.node_id)

    def _on_image(self, image: MetadataImage, delta: ImageDelta) -> None:
        if any(resource_type == RESOURCE_BROKER for resource_type, _ in delta.changed_configs):
            self.config = self.logs.config = self.controller.effective_config
            self.replicas.on_broker_config(self.config)
            self.groups.on_config(self.config)
        self.replicas.on_image(image, delta)
        self.groups.on_image(image, delta)
        if self._assignment is not None:
            self._assignment.maybe_tell()

    def _offline_directories(self) -> list[Uuid]:
        offline = {one.path for one in self.logs.directories if not one.online}
        return [one for path, one in self._directories.directory_ids.items() if os.path.abspath(path) in offline]

    def _cordoned_directories(self) -> list[Uuid]:
        return [one for path, one in self._directories.directory_ids.items() if self.config.is_cordoned(path)]

    # Stop

    async def stop(self) -> None:
        """Undoes what `start` got done, however far that was: in-flight requests first, the logs last."""
        # A node whose own metadata log is broken cannot ask itself, and what it leads is lost to the others anyway.
        asks_first = not self.has_given_up
        if asks_first and "groups" in self._started and self._others_can_lead():
            await self.lifecycle.shut_down(SHUTDOWN_CONSENT_S)
        for server in self._broker_servers:
            server.stop_accepting()
        if "groups" in self._started:
            self.groups.stop_accepting()
        for server in self._broker_servers:
            await server.shutdown(DRAIN_TIMEOUT_S)
        if self._assignment is not None:
            await self._assignment.stop()
        if "groups" in self._started:
            await self.groups.shutdown()
            await self.replicas.stop()
        if self._replication is not None:
            await self._replication.stop()
        if "lifecycle" in self._started:
            if asks_first:
                await self.lifecycle.shut_down(SHUTDOWN_CONSENT_S)
            await self.lifecycle.stop()
        if "logs" in self._started:
            await self.logs.shutdown(self.lifecycle.epoch)
        if self._registration is not None:
            await self._registration.stop()
        if "controller" in self._started:
            await self.controller.shutdown()
        for server in self._controller_servers:
            await server.shutdown(DRAIN_TIMEOUT_S)
        await self._clients.close()
        if self._metadata_dir is not None:
            self._metadata_dir.unlock()

    def _others_can_lead(self) -> bool:
        """Whether clients have somewhere else to go; then this broker hands over while it still serves."""
        return any(broker.id != self.node_id for broker in self.image.unfenced_brokers)


def handlers_of_controllers() -> dict[int, HandlerEntry]:
    """The APIs of a controller's listener; for some of them controllers have handlers of their own."""
    shared = {key: entry for key, entry in HANDLERS.items() if key in CONTROLLER_APIS and key != FetchRequest.API_KEY}
    return {**shared, **CONTROLLER_HANDLERS}


def handlers_of_brokers() -> dict[int, HandlerEntry]:
    return {
        key: forwarded(entry) if key in FORWARDED else entry
        for key, entry in HANDLERS.items()
        if key not in CONTROLLER_ONLY_APIS
    }


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
