"""Small builders for tests of the controller: configurations, controllers on a directory, images, requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from support.logs import Clock

from config.broker import BrokerConfig
from controller.controller import Controller
from controller.delta import apply_records
from controller.endpoints import broker_endpoints
from controller.features import SUPPORTED_FEATURES, bootstrap_feature_records
from controller.image import EMPTY_IMAGE, MetadataImage
from controller.snapshot_records import image_records
from controller.storage_format import ensure_formatted
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from protocol.metadata import decode_record
from protocol.metadata.feature_level_record import FeatureLevelRecord
from protocol.metadata.register_broker_record import BrokerEndpoint, RegisterBrokerRecord
from protocol.records import iter_batches, iter_records
from protocol.schema import Message
from protocol.uuids import Uuid
from storage.disk import DISK, Disk

NODE_ID = 1


def node_config(directory: Path, **settings: str) -> BrokerConfig:
    """A combined node; settings are given with underscores for dots. It writes nothing that a test did not ask for."""
    return BrokerConfig.from_map(
        {
            "process.roles": "broker,controller",
            "node.id": str(NODE_ID),
            "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
            "advertised.listeners": "PLAINTEXT://127.0.0.1:9092",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
            "log.dirs": str(directory),
            "metadata.max.idle.interval.ms": "0",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


async def started(
    directory: Path, *, disk: Disk = DISK, clock: Clock | None = None, register: bool = True, **settings: str
) -> Controller:
    """A controller on `directory`, formatted if it is empty, leading and (with `register`) with an active broker."""
    config = node_config(directory, **settings)
    clock = clock or Clock()
    node = ensure_formatted(config, disk=disk, now_ms=clock())
    controller = Controller(config, node, disk=disk, clock=clock, random=Random(1))
    await controller.start()
    if register:
        await register_broker(controller)
    return controller


async def register_broker(controller: Controller, broker_id: int = NODE_ID) -> int:
    """As a broker process does: register, catch up, ask to be unfenced. The epoch of the registration."""
    request = BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=controller.cluster_id,
        incarnation_id=Uuid.random(),
        listeners=[
            Listener(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in broker_endpoints(controller.effective_config)
        ],
        features=[
            Feature(name=name, min_supported_version=levels.min_version, max_supported_version=levels.max_version)
            for name, levels in SUPPORTED_FEATURES.items()
        ],
        log_dirs=list(controller.node.directory_ids.values()),
        rack=None,
    )
    registered = await controller.on_broker_registration(request)
    assert registered.error_code == 0, registered
    beat = await controller.on_broker_heartbeat(heartbeat(controller, registered.broker_epoch, broker_id))
    assert (beat.error_code, beat.is_fenced) == (0, False), beat
    return registered.broker_epoch


def heartbeat(
    controller: Controller, epoch: int, broker_id: int = NODE_ID, *, fence: bool = False, shut_down: bool = False
) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=epoch,
        current_metadata_offset=controller.image.offset,
        want_fence=fence,
        want_shut_down=shut_down,
        cordoned_log_dirs=[],
    )


async def producer_ids(controller: Controller, broker_id: int = NODE_ID) -> AllocateProducerIdsResponse:
    """A block of ids, as the registered broker asks for it."""
    epoch = controller.image.brokers[broker_id].epoch
    return await controller.on_allocate_producer_ids(
        AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch)
    )


def metadata_directory(directory: Path) -> Path:
    return directory / "__cluster_metadata-0"


def topic(
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    configs: Mapping[str, str | None] | None = None,
    assignments: Mapping[int, Sequence[int]] | None = None,
) -> CreatableTopic:
    if assignments is not None:
        partitions = replication_factor = -1
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in (assignments or {}).items()
        ],
    )


def create(*topics: CreatableTopic, validate_only: bool = False, timeout_ms: int = 30_000) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), validate_only=validate_only, timeout_ms=timeout_ms)


def broker_record(broker_id: int, *, fenced: bool = False, rack: str | None = None, **fields: Any) -> Message:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=Uuid(bytes([broker_id]) * 16),
        broker_epoch=100 + broker_id,
        end_points=[BrokerEndpoint(name="PLAINTEXT", host=f"b{broker_id}", port=9092, security_protocol=0)],
        fenced=fenced,
        rack=rack,
        log_dirs=fields.pop("log_dirs", [Uuid(bytes([200, broker_id]) * 8)]),
        **fields,
    )


def image_of(records: Iterable[Message], image: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    listed = list(records)
    return apply_records(image, listed, offset=image.offset + len(listed), epoch=1)[0]


def cluster(*brokers: Message, elr: bool = True) -> MetadataImage:
    """A fresh cluster of Kafka 4.3.1's levels with these brokers."""
    features = bootstrap_feature_records()
    if not elr:
        features.append(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=0))
    return image_of([*features, *brokers])


def content(image: MetadataImage) -> list[str]:
    """All that an image says, its position in the log aside, in a form that shows differences well."""
    return sorted(map(repr, image_records(image)))


def logged(path: Path) -> list[tuple[int, Message]]:
    """(version, record) of every data record in a file of batches."""
    data = path.read_bytes()
    found = []
    for position, header in iter_batches(data):
        if not header.is_control:
            for record in iter_records(data[position : position + header.size]):
                message, version = decode_record(record.value or b"")
                found.append((version, message))
    return found
