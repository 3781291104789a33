"""What the kinds of groups share: the interface of a group, the state of one shard, and who is asking."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from broker.coordinator.effects import Effects
from broker.coordinator.group.config import GroupConfig
from broker.coordinator.group.timers import Timers
from broker.coordinator.records import CoordinatorRecord
from controller.image import ImageDelta, MetadataImage
from protocol.errors import ApiError, ErrorCode
from protocol.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.sync_group import SyncGroupRequest
from protocol.uuids import Uuid

if TYPE_CHECKING:
    import random

    from broker.coordinator.group.offsets import OffsetStore

UNKNOWN_MEMBER_ID = ""
NO_GENERATION = -1
CONSUMER_PROTOCOL_TYPE = "consumer"


PartitionCheck = Callable[[str, Uuid, int], None]
"""Raises ApiError unless an offset may be committed for the topic (name and id) and partition."""


class Client(NamedTuple):
    """Who sent a request. ``client_host`` is as Kafka shows it: "/" and the address."""

    client_id: str
    client_host: str
    api_version: int


class GroupType(Enum):
    """The value is what ListGroups answers; filters compare without regard to case."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class ExpirationBase(NamedTuple):
    """From when on offsets of a group age (KIP-211).

    Per topic: an offset of a topic that somebody is still subscribed to never expires. ``base_ms`` is the time since
    which the group is empty, or None where each offset ages from its own commit.
    """

    base_ms: int | None


class Group(ABC):
    """One group of either kind. The checks raise ApiError with the code the client is to see."""

    group_id: str
    group_type: GroupType

    @abstractmethod
    def state_name(self) -> str:
        """As DescribeGroups and ListGroups print it: Empty, PreparingRebalance, Stable, Assigning ..."""

    @abstractmethod
    def listed_protocol_type(self) -> str:
        """The protocol type in ListGroups."""

    @abstractmethod
    def is_empty(self) -> bool:
        """No members. What is empty may be deleted, expire, or change its kind."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member may be consuming the topic: its offsets then neither expire nor can be deleted."""

    @abstractmethod
    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, is_transactional: bool, api_version: int
    ) -> PartitionCheck | None:
        """``generation`` is the generation of a classic member or the epoch of a consumer member.

        May return what is left to check for each partition; if one of them fails, all of the request does.
        """

    @abstractmethod
    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None: ...

    @abstractmethod
    def check_offset_delete(self) -> None: ...

    @abstractmethod
    def check_delete(self) -> None:
        """NON_EMPTY_GROUP unless the group may be deleted now."""

    @abstractmethod
    def tombstones(self) -> list[CoordinatorRecord]:
        """The records that erase the group itself (its offsets have their own)."""

    @abstractmethod
    def expiration_base(self) -> ExpirationBase | None:
        """None while no offset of the group may expire."""

    @abstractmethod
    def on_removed(self) -> None:
        """The group was deleted or replaced by one of the other kind: cancel its timers."""


GroupT = TypeVar("GroupT", bound=Group)


class ShardState:
    """All that is owned by one partition of `__consumer_offsets`, shared by the parts of the core.

    The parts change ``groups`` only through ``put`` and ``drop``, so that timers of a replaced group never fire.
    """

    __slots__ = ("config", "groups", "image", "new_id", "offsets", "rng", "timers")

    offsets: OffsetStore

    def __init__(
        self, config: GroupConfig, image: MetadataImage, rng: random.Random, new_id: Callable[[], str]
    ) -> None:
        self.config = config
        self.image = image
        self.rng = rng
        self.new_id = new_id
        """A fresh id (in production a random UUID): the tail of generated member ids."""
        self.groups: dict[str, Group] = {}
        self.timers = Timers()

    def put(self, group: Group) -> None:
        previous = self.groups.get(group.group_id)
        if previous is not None and previous is not group:
            previous.on_removed()
        self.groups[group.group_id] = group

    def drop(self, group_id: str) -> None:
        group = self.groups.pop(group_id, None)
        if group is not None:
            group.on_removed()

    def find(self, group_id: str, kind: type[GroupT]) -> GroupT | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, kind) else None

    def group_or_raise(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group


class ConsumerPart(Protocol):
    """What the core asks of the KIP-848 part (`consumer/manager.py`, class ConsumerGroups).

    Built as ``ConsumerGroups(shard, classic)``: ``classic`` is the ClassicGroups of the same shard, for migration.
    It keeps its deadlines in ``shard.timers`` under keys that start with ("consumer", group_id).
    """

    def heartbeat(
        self, now_ms: int, token: object, request: ConsumerGroupHeartbeatRequest, client: Client
    ) -> Effects: ...

    def describe(self, group_ids: Sequence[str]) -> list[DescribedConsumerGroup]: ...

    # Members that still speak the classic protocol in a non-empty consumer group. Heartbeat is reached by the core
    # only when the group is a consumer group; the responses are the classic APIs' own.
    def classic_join(self, now_ms: int, token: object, request: JoinGroupRequest, client: Client) -> Effects: ...

    def classic_sync(self, now_ms: int, token: object, request: SyncGroupRequest, client: Client) -> Effects: ...

    def classic_heartbeat(self, now_ms: int, token: object, request: HeartbeatRequest, client: Client) -> Effects: ...

    def classic_leave(self, now_ms: int, token: object, request: LeaveGroupRequest, client: Client) -> Effects: ...

    def on_image(self, now_ms: int, delta: ImageDelta) -> Effects:
        """``shard.image`` is already the new image."""

    def replay(self, record: CoordinatorRecord) -> None:
        """Record types 3 to 8 and 16."""

    def on_loaded(self, now_ms: int) -> Effects: ...
