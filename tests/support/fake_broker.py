"""What handlers reach through their context, without files and sockets.

The image is a real one, built from real records, and the controller decides with the real state machines; only the
log behind it is missing. Storage is two plain values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from inspect import isawaitable
from random import Random
from typing import Any, NamedTuple, cast

from broker.api import HANDLERS, RequestContext
from broker.coordinator.service import GroupService
from broker.handlers import register_all
from config.addresses import Listener
from config.broker import BrokerConfig
from controller import brokers, configs, partitions, topics
from controller.brokers import Registration
from controller.delta import apply_records
from controller.features import bootstrap_feature_records
from controller.image import EMPTY_IMAGE, Endpoint, ImageDelta, MetadataImage
from protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from protocol.schema import Message
from protocol.uuids import Uuid

NODE_ID = 1
CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
LISTENER = Listener("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT")
CONTROLLER_LISTENER = Listener("CONTROLLER", "127.0.0.1", 9093, "PLAINTEXT")
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": str(NODE_ID),
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "advertised.listeners": "PLAINTEXT://broker1.example:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
}


class FakeController:
    """Decides as the controller does, and applies at once what the controller would first make durable."""

    def __init__(self, config: BrokerConfig) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self.config = config
        self.leader_id = NODE_ID
        self.kraft_version = 1
        self.requests: list[Message] = []
        self.quorum: Callable[[DescribeQuorumRequest], DescribeQuorumResponse] = lambda _: DescribeQuorumResponse()
        self._random = Random(7)
        self.on_change: Callable[[MetadataImage, ImageDelta], None] = lambda image, delta: None

    @property
    def effective_config(self) -> BrokerConfig:
        return self.config.with_dynamic(
            dynamic_broker=self.image.broker_configs(NODE_ID), dynamic_default=self.image.default_broker_configs
        )

    def apply(self, records: list[Message]) -> None:
        if records:
            self.image, delta = apply_records(
                self.image, records, offset=self.image.offset + len(records), epoch=1, timestamp=0
            )
            self.on_change(self.image, delta)

    def _change(self, request: Message, outcome: Any) -> Any:
        self.requests.append(request)
        self.apply(outcome.records)
        return outcome.response

    async def create_topics(self, request: Any, *, principal: str) -> Any:
        made = topics.create_topics(self.image, request, config=self.effective_config, random=self._random)
        return self._change(request, made)

    async def delete_topics(self, request: Any, *, principal: str, api_version: int) -> Any:
        made = topics.delete_topics(self.image, request, config=self.effective_config, api_version=api_version)
        return self._change(request, made)

    async def create_partitions(self, request: Any, *, principal: str) -> Any:
        return self._change(request, partitions.create_partitions(self.image, request, random=self._random))

    async def incremental_alter_configs(self, request: Any, *, principal: str) -> Any:
        made = configs.incremental_alter_configs(self.image, request, config=self.effective_config)
        return self._change(request, made)

    async def alter_configs(self, request: Any, *, principal: str) -> Any:
        return self._change(request, configs.alter_configs(self.image, request, config=self.effective_config))

    def describe_quorum(self, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        return self.quorum(request)


class FakeForwarding:
    """The controller is in this process: what others would forward is decided at once."""

    def __init__(self, controller: FakeController) -> None:
        self._controller = controller

    async def decide(self, ctx: Any, request: Message, locally: Callable[[], Any]) -> Any:
        return await locally()

    async def create_topics(self, request: Any, *, principal: str) -> Any:
        return await self._controller.create_topics(request, principal=principal)


class FakeDirectory(NamedTuple):
    path: str
    online: bool = True


class FakeLog(NamedTuple):
    topic: str
    partition: int
    log_dir: FakeDirectory
    size_bytes: int = 0
    log_end_offset: int = 0
    high_watermark: int = 0


class FakePartition(NamedTuple):
    topic: str
    index: int
    log: FakeLog


class FakeReplicas:
    def __init__(self, logs: FakeLogs) -> None:
        self.partitions: dict[tuple[str, int], FakePartition] = {}
        self._logs = logs

    def add(self, topic: str, index: int, directory: str, **log: int) -> None:
        current = FakeLog(topic, index, FakeDirectory(directory), **log)
        self.partitions[topic, index] = FakePartition(topic, index, current)
        self._logs.current[topic, index] = current

    def partition_or_none(self, topic: str, index: int) -> FakePartition | None:
        return self.partitions.get((topic, index))


class FakeLogs:
    def __init__(self) -> None:
        self.directories: list[FakeDirectory] = []
        self.current: dict[tuple[str, int], FakeLog] = {}
        self.futures: dict[tuple[str, int], FakeLog] = {}

    def __iter__(self) -> Iterator[FakeLog]:
        return iter([*self.current.values(), *self.futures.values()])

    def add_future(self, topic: str, index: int, directory: str, **log: int) -> None:
        self.futures[topic, index] = FakeLog(topic, index, FakeDirectory(directory), **log)

    def get(self, topic: str, index: int) -> FakeLog | None:
        return self.current.get((topic, index))

    def future(self, topic: str, index: int) -> FakeLog | None:
        return self.futures.get((topic, index))


class FakeBroker:
    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        register_all()
        given = {**SETTINGS, **(settings or {})}
        self.config = BrokerConfig.from_map({name: value for name, value in given.items() if value})
        self.node_id = NODE_ID
        self.cluster_id = CLUSTER_ID
        self.controller = FakeController(self.config)
        self.forwarding = FakeForwarding(self.controller)
        self.logs = FakeLogs()
        self.replicas = FakeReplicas(self.logs)
        self.controller.apply(bootstrap_feature_records())
        self.groups = GroupService(self.config, NODE_ID, cast(Any, self.replicas), self.image)
        self.controller.on_change = self.groups.on_image

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    def register(self, broker_id: int = NODE_ID, *, rack: str | None = None, fenced: bool = False) -> FakeBroker:
        endpoint = Endpoint("PLAINTEXT", f"broker{broker_id}.example", 9091 + broker_id, 0)
        registration = Registration(
            broker_id=broker_id,
            incarnation_id=Uuid.random(),
            endpoints=[endpoint],
            directories=[Uuid.random()],
            rack=rack,
            previous_epoch=-1,
        )
        self.controller.apply(brokers.register_broker(self.image, self.config, registration, self.image.offset + 1))
        if not fenced:
            self.controller.apply(brokers.unfence_broker(self.image, self.config, broker_id))
        return self

    def create(self, name: str, partitions: int = 1, replicas: tuple[int, ...] = (NODE_ID,), **settings: str) -> Uuid:
        """A topic by the controller's own rules; the id it got."""
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=i, broker_ids=list(replicas)) for i in range(partitions)
            ],
        )
        topic.configs = [_config(key, value) for key, value in settings.items()]
        request = CreateTopicsRequest(topics=[topic])
        made = topics.create_topics(self.image, request, config=self.config, random=Random(7))
        assert made.response.topics[0].error_code == 0, made.response
        self.controller.apply(made.records)
        return self.image.topics_by_name[name].topic_id

    def context(
        self,
        request: Message,
        version: int,
        *,
        listener: Listener = LISTENER,
        local_address: tuple[str, int] = ("10.0.0.7", 19092),
    ) -> RequestContext:
        return RequestContext(
            cast(Any, self),
            request.API_KEY,
            version,
            7,
            "test",
            peer="127.0.0.1:5",
            listener=listener,
            local_address=local_address,
            close_connection=lambda reason: None,
        )

    async def ask(self, request: Message, version: int | None = None, **context: Any) -> Any:
        """Through the wire and back: the request and the response are encoded and decoded at the version."""
        asked_version = request.MAX_VERSION if version is None else version
        received = type(request).decode(request.encode(asked_version), asked_version)
        ctx = self.context(request, asked_version, **context)
        answer = HANDLERS[request.API_KEY].function(ctx, received)
        response = await answer if isawaitable(answer) else answer
        assert response is not None
        return type(response).decode(response.encode(asked_version), asked_version)


def _config(name: str, value: str) -> Any:
    from protocol.messages.create_topics import CreatableTopicConfig

    return CreatableTopicConfig(name=name.replace("_", "."), value=value)
