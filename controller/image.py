"""The metadata image: the cluster's metadata at one offset of the metadata log, as immutable values.

Readers (handlers, the replica manager) take ``controller.image`` once and use it for a whole request: nothing
in it ever changes, so no half-applied topic can be seen. A new image shares everything that did not change
with the one before it. Only ``controller.delta`` makes images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from protocol.uuids import DIRECTORY_UNASSIGNED, Uuid

NO_LEADER: Final = -1

# Kafka's resource types of ConfigRecord and the config APIs.
RESOURCE_TOPIC: Final = 2
RESOURCE_BROKER: Final = 4
RESOURCE_BROKER_LOGGER: Final = 8
RESOURCE_CLIENT_METRICS: Final = 16
RESOURCE_GROUP: Final = 32

METADATA_VERSION_FEATURE: Final = "metadata.version"
KRAFT_VERSION_FEATURE: Final = "kraft.version"
ELR_VERSION_FEATURE: Final = "eligible.leader.replicas.version"

EMPTY: Final[Mapping[Any, Any]] = MappingProxyType({})


def _empty() -> Mapping[Any, Any]:
    """One mapping for all defaults; a dataclass takes it only from a factory, because it does not hash."""
    return EMPTY


LEADER_RECOVERED: Final = 0
LEADER_RECOVERING: Final = 1


class PartitionImage(NamedTuple):
    """``leader`` is -1 while no replica may lead; ``partition_epoch`` grows with every change."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    directories: tuple[Uuid, ...] = ()
    leader: int = NO_LEADER
    leader_epoch: int = 0
    partition_epoch: int = 0
    leader_recovery_state: int = LEADER_RECOVERED

    def directory_of(self, replica: int) -> Uuid:
        """The log directory that holds the replica, or a reserved id when none is known."""
        try:
            return self.directories[self.replicas.index(replica)]
        except (ValueError, IndexError):
            return DIRECTORY_UNASSIGNED


class TopicImage(NamedTuple):
    name: str
    topic_id: Uuid
    partitions: Mapping[int, PartitionImage]


class Endpoint(NamedTuple):
    name: str
    host: str
    port: int
    security_protocol: int


class VersionRange(NamedTuple):
    min_version: int
    max_version: int


class BrokerImage(NamedTuple):
    """A registered broker. ``epoch`` identifies this registration; one that restarts gets a larger one."""

    id: int
    epoch: int
    incarnation_id: Uuid
    endpoints: Mapping[str, Endpoint]
    features: Mapping[str, VersionRange]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[Uuid, ...]
    cordoned_directories: tuple[Uuid, ...] | None = None
    is_migrating_zk_broker: bool = False

    @property
    def is_active(self) -> bool:
        """Neither fenced nor shutting down: may be given leadership."""
        return not self.fenced and not self.in_controlled_shutdown


class ControllerImage(NamedTuple):
    id: int
    incarnation_id: Uuid
    zk_migration_ready: bool
    endpoints: Mapping[str, Endpoint]
    features: Mapping[str, VersionRange]


class FeaturesImage(NamedTuple):
    """Finalized features, ``metadata.version`` included. ``epoch`` is the image's offset, for ApiVersions."""

    metadata_version: int = 0
    finalized: Mapping[str, int] = EMPTY
    epoch: int = -1

    @property
    def is_elr_enabled(self) -> bool:
        return self.finalized.get(ELR_VERSION_FEATURE, 0) >= 1


NO_FEATURES: Final = FeaturesImage()


class AclImage(NamedTuple):
    id: Uuid
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class ScramCredentialImage(NamedTuple):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class DelegationTokenImage(NamedTuple):
    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    max_timestamp: int
    expiration_timestamp: int


# Sorted (type, name) pairs, e.g. (("client-id", "app"), ("user", None)); a name of None is the default entity.
QuotaEntity = tuple[tuple[str, str | None], ...]
ConfigResource = tuple[int, str]


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """Everything the log says up to and including ``offset``; ``epoch`` is that last record's leader epoch."""

    offset: int = -1
    epoch: int = 0
    timestamp: int = 0
    topics_by_name: Mapping[str, TopicImage] = field(default_factory=_empty)
    topics_by_id: Mapping[Uuid, TopicImage] = field(default_factory=_empty)
    brokers: Mapping[int, BrokerImage] = field(default_factory=_empty)
    controllers: Mapping[int, ControllerImage] = field(default_factory=_empty)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=_empty)
    features: FeaturesImage = NO_FEATURES
    next_producer_id: int = 0
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=_empty)
    acls: Mapping[Uuid, AclImage] = field(default_factory=_empty)
    scram_credentials: Mapping[tuple[int, str], ScramCredentialImage] = field(default_factory=_empty)
    delegation_tokens: Mapping[str, DelegationTokenImage] = field(default_factory=_empty)
    zk_migration_state: int = 0

    def topic_configs(self, name: str) -> Mapping[str, str]:
        """The overrides set on a topic; what is not there follows the broker's configuration."""
        return self.configs.get((RESOURCE_TOPIC, name), EMPTY)

    def broker_configs(self, broker_id: int) -> Mapping[str, str]:
        """Dynamic configuration of one broker."""
        return self.configs.get((RESOURCE_BROKER, str(broker_id)), EMPTY)

    @property
    def default_broker_configs(self) -> Mapping[str, str]:
        """Dynamic cluster-wide configuration; a broker's own dynamic value wins over it."""
        return self.configs.get((RESOURCE_BROKER, ""), EMPTY)

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        image = self.topics_by_name.get(topic)
        return None if image is None else image.partitions.get(partition)

    @property
    def unfenced_brokers(self) -> list[BrokerImage]:
        """The brokers that clients may be told of."""
        return [broker for broker in self.brokers.values() if not broker.fenced]


EMPTY_IMAGE: Final = MetadataImage()


@dataclass(slots=True)
class ImageDelta:
    """What one step of the image changed, so that a subscriber need not compare 4,000 topics to find one.

    ``deleted_topics`` holds the images as they were before. A topic that was deleted and created again between
    two images is in both ``deleted_topics`` (old id) and ``changed_topics`` (new id).
    """

    changed_topics: set[str] = field(default_factory=set)
    created_topics: set[str] = field(default_factory=set)
    deleted_topics: list[TopicImage] = field(default_factory=list)
    # partitions whose PartitionImage is new or differs: topic name -> partition ids
    changed_partitions: dict[str, set[int]] = field(default_factory=dict)
    changed_configs: set[ConfigResource] = field(default_factory=set)
    changed_brokers: set[int] = field(default_factory=set)
    changed_controllers: set[int] = field(default_factory=set)
    features_changed: bool = False
    producer_ids_changed: bool = False
    changed_quotas: set[QuotaEntity] = field(default_factory=set)
    acls_changed: bool = False
    scram_changed: bool = False
    delegation_tokens_changed: bool = False

    @property
    def brokers_changed(self) -> bool:
        return bool(self.changed_brokers)

    @property
    def is_empty(self) -> bool:
        """Only NoOp records: the offset moved and nothing else did."""
        return not (
            self.changed_topics
            or self.deleted_topics
            or self.changed_configs
            or self.changed_brokers
            or self.changed_controllers
            or self.features_changed
            or self.producer_ids_changed
            or self.changed_quotas
            or self.acls_changed
            or self.scram_changed
            or self.delegation_tokens_changed
        )
