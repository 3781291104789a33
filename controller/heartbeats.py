"""BrokerHeartbeat: who is alive, who is fenced, and when a broker that leaves may go.

``BrokerHeartbeats`` is soft state of the active controller alone: when each broker was last heard of and how far it has
read the metadata. It is not in the log, so a new controller starts with the benefit of the doubt: everyone who was
unfenced was heard of just now. It follows the images as appended (``on_appended``); time is passed in.
"""

from __future__ import annotations

import logging
from enum import Enum, auto
from typing import Final, NamedTuple

from config.broker import BrokerConfig
from controller.brokers import begin_controlled_shutdown, fence_broker, leads_any, unfenced
from controller.delta import apply_records
from controller.image import BrokerImage, ImageDelta, MetadataImage
from controller.leadership import Elections
from controller.outcome import Outcome
from controller.record_versions import CORDONED_DIRECTORIES_LEVEL, DIRECTORY_ASSIGNMENT_LEVEL
from protocol.errors import ApiError, ErrorCode
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.metadata.broker_registration_change_record import BrokerRegistrationChangeRecord
from protocol.schema import Message
from protocol.uuids import Uuid

_log = logging.getLogger(__name__)

FENCE_AGAIN_MS: Final = 1000
"""After the log did not take a broker's fencing, because the disk is full for instance."""

_NONE: Final = -1
_NO_ONE_IS_BEHIND: Final = 1 << 62


class BrokerState(Enum):
    """Where a broker is in its life, as the controller sees it."""

    FENCED = auto()
    UNFENCED = auto()
    CONTROLLED_SHUTDOWN = auto()
    SHUTDOWN_NOW = auto()

    @property
    def is_fenced(self) -> bool:
        return self in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW)


class _Broker:
    """What is known of one registration. Offsets are of the metadata log, -1 when there is none."""

    __slots__ = ("contact_ms", "epoch", "is_suspected", "metadata_offset", "registered_offset", "shutdown_offset")

    def __init__(self, epoch: int, registered_offset: int) -> None:
        self.epoch = epoch
        self.registered_offset = registered_offset
        """Not before the registration's own record: a broker is unfenced once it has read that far."""
        self.metadata_offset = _NONE
        self.shutdown_offset = _NONE
        """Where the log was when its leaders had been moved: it may stop once the others know of that."""
        self.contact_ms: int | None = None
        """When it was last heard of; None before its first heartbeat and after its session ended."""
        self.is_suspected = False
        """It has missed a heartbeat since, and somebody has been told to look."""


class BrokerHeartbeats:
    def __init__(self, session_timeout_ms: int, heartbeat_interval_ms: int | None = None) -> None:
        self.session_timeout_ms = session_timeout_ms
        interval_ms = session_timeout_ms if heartbeat_interval_ms is None else heartbeat_interval_ms
        self.silence_ms = interval_ms * 3 // 2
        """After this time a heartbeat is missing, not merely late."""
        self._brokers: dict[int, _Broker] = {}

    def activate(self, image: MetadataImage, now_ms: int) -> None:
        """This node became the active controller; nobody is held responsible for heartbeats it did not see."""
        self._brokers = {}
        for broker in image.brokers.values():
            known = self._brokers[broker.id] = _Broker(broker.epoch, image.offset)
            if not broker.fenced:
                known.contact_ms = now_ms
                if broker.in_controlled_shutdown:
                    known.shutdown_offset = image.offset

    def on_appended(self, image: MetadataImage, delta: ImageDelta) -> None:
        """Registrations, fencing and shutdowns take effect when they are appended, as all decisions do."""
        for broker_id in delta.changed_brokers:
            broker = image.brokers.get(broker_id)
            if broker is None:
                self._brokers.pop(broker_id, None)
                continue
            known = self._brokers.get(broker_id)
            if known is None or known.epoch != broker.epoch:
                known = self._brokers[broker_id] = _Broker(broker.epoch, image.offset)
            if broker.fenced:
                known.shutdown_offset = _NONE  # on its next heartbeat it may stop at once
            elif broker.in_controlled_shutdown and known.shutdown_offset == _NONE:
                known.shutdown_offset = image.offset

    def on_contact(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """A heartbeat came in. Called before the heartbeat is decided on, so a slow controller fences nobody."""
        known = self._brokers.get(broker_id)
        if known is not None and known.epoch == broker_epoch:
            known.contact_ms = now_ms
            known.is_suspected = False

    def end_session(self, broker_id: int, broker_epoch: int) -> None:
        """This registration's process is dead, or about to end: another may take its id at once.

        Called when its fencing is in the log, not before: nobody fences a broker without a session.
        """
        known = self._brokers.get(broker_id)
        if known is not None and known.epoch == broker_epoch:
            known.contact_ms = None

    def on_metadata_offset(self, broker_id: int, metadata_offset: int) -> None:
        self._brokers[broker_id].metadata_offset = metadata_offset

    def has_valid_session(self, broker_id: int, broker_epoch: int, now_ms: int) -> bool:
        known = self._brokers.get(broker_id)
        if known is None or known.epoch != broker_epoch or known.contact_ms is None:
            return False
        return not self._is_expired(known.contact_ms, now_ms)

    def registered_offset(self, broker_id: int) -> int | None:
        known = self._brokers.get(broker_id)
        return None if known is None else known.registered_offset

    def is_shutting_down(self, broker_id: int) -> bool:
        return self._brokers[broker_id].shutdown_offset != _NONE

    def may_shut_down(self, image: MetadataImage, broker_id: int) -> bool:
        """Every active broker has read that this one's leaders were moved, and tells its clients so."""
        return self._brokers[broker_id].shutdown_offset <= self.lowest_active_offset(image)

    def lowest_active_offset(self, image: MetadataImage) -> int:
        return min(
            (
                known.metadata_offset
                for broker_id, known in self._brokers.items()
                if known.shutdown_offset == _NONE and broker_id in image.brokers and not image.brokers[broker_id].fenced
            ),
            default=_NO_ONE_IS_BEHIND,
        )

    def expired(self, now_ms: int) -> list[tuple[int, int]]:
        """The brokers whose session is over and was not ended yet, with their epochs, in the order of their ids."""
        return [
            (broker_id, known.epoch)
            for broker_id, known in sorted(self._brokers.items())
            if known.contact_ms is not None and self._is_expired(known.contact_ms, now_ms)
        ]

    def next_deadline_ms(self) -> int | None:
        """When to ask ``expired`` again; None while there is no session."""
        contacts = [known.contact_ms for known in self._brokers.values() if known.contact_ms is not None]
        return min(contacts) + self.session_timeout_ms + 1 if contacts else None

    def contact(self, broker_id: int) -> tuple[int, int] | None:
        """The epoch of the broker and when it was last heard of; None without a session."""
        known = self._brokers.get(broker_id)
        return None if known is None or known.contact_ms is None else (known.epoch, known.contact_ms)

    def newly_silent(self, now_ms: int) -> list[int]:
        """The brokers that have missed a heartbeat, each once for as long as it stays silent."""
        found = []
        for broker_id, known in sorted(self._brokers.items()):
            due = self._suspicion_ms(known)
            if due is not None and due <= now_ms:
                known.is_suspected = True
                found.append(broker_id)
        return found

    def next_suspicion_ms(self) -> int | None:
        """When to ask ``newly_silent`` again; None while nobody can become silent."""
        dues = [self._suspicion_ms(known) for known in self._brokers.values()]
        return min((due for due in dues if due is not None), default=None)

    def _suspicion_ms(self, known: _Broker) -> int | None:
        return None if known.contact_ms is None or known.is_suspected else known.contact_ms + self.silence_ms

    def _is_expired(self, contact_ms: int, now_ms: int) -> bool:
        return contact_ms + self.session_timeout_ms < now_ms


class _Next(NamedTuple):
    current: BrokerState
    next: BrokerState


def broker_heartbeat(
    image: MetadataImage,
    request: BrokerHeartbeatRequest,
    *,
    config: BrokerConfig,
    heartbeats: BrokerHeartbeats,
) -> Outcome[BrokerHeartbeatResponse]:
    """Raises STALE_BROKER_EPOCH for anyone but the registration that counts."""
    broker_id = request.broker_id
    broker = check_broker_epoch(image, broker_id, request.broker_epoch)
    registered_offset = heartbeats.registered_offset(broker_id)
    if registered_offset is None:
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"Receive a heartbeat from broker {broker_id} before registration")
    states = _next_state(image, broker, request, registered_offset, heartbeats)
    if states.current is not states.next:
        _log.info("Broker %d: %s after its heartbeat, was %s", broker_id, states.next.name, states.current.name)
    records = _transition(image, config, broker, states)
    heartbeats.on_metadata_offset(broker_id, request.current_metadata_offset)
    level = image.features.metadata_version
    if level >= DIRECTORY_ASSIGNMENT_LEVEL and request.offline_log_dirs:
        after = image if not records else apply_records(image, records, offset=image.offset, epoch=image.epoch)[0]
        records += _directories_offline(after, config, request)
    cordoned = request.cordoned_log_dirs
    if level >= CORDONED_DIRECTORIES_LEVEL and cordoned is not None and _differ(broker, cordoned):
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=list(cordoned)
            )
        )
    return Outcome(
        records,
        BrokerHeartbeatResponse(
            is_caught_up=request.current_metadata_offset >= registered_offset,
            is_fenced=states.next.is_fenced,
            should_shut_down=states.next is BrokerState.SHUTDOWN_NOW,
        ),
    )


def check_broker_epoch(image: MetadataImage, broker_id: int, broker_epoch: int) -> BrokerImage:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
    if broker.epoch != broker_epoch:
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}",
        )
    return broker


def fence_dead(
    image: MetadataImage, broker_id: int, seen: tuple[int, int], *, config: BrokerConfig, heartbeats: BrokerHeartbeats
) -> Outcome[bool]:
    """Fence a broker whose process is gone, unless it was heard of since ``seen``, or another has its place.

    True if its session is to be ended with that.
    """
    broker = image.brokers.get(broker_id)
    if broker is None or heartbeats.contact(broker_id) != seen or broker.epoch != seen[0]:
        return Outcome([], False)
    return Outcome([] if broker.fenced else fence_broker(image, config, broker_id), True)


def fence_expired(
    image: MetadataImage, *, config: BrokerConfig, heartbeats: BrokerHeartbeats, now_ms: int
) -> Outcome[list[tuple[int, int]]]:
    """Fence the brokers that were silent for longer than broker.session.timeout.ms.

    The answer names those whose sessions are to be ended with that, with their epochs.
    """
    records: list[Message] = []
    expired = heartbeats.expired(now_ms)
    for broker_id, _ in expired:
        broker = image.brokers.get(broker_id)
        if broker is None or broker.fenced:
            continue
        _log.warning("Fencing broker %d at epoch %d because its session has timed out.", broker_id, broker.epoch)
        made = fence_broker(image, config, broker_id)
        image, _ = apply_records(image, made, offset=image.offset, epoch=image.epoch)
        records += made
    return Outcome(records, expired)


def _next_state(
    image: MetadataImage,
    broker: BrokerImage,
    request: BrokerHeartbeatRequest,
    registered_offset: int,
    heartbeats: BrokerHeartbeats,
) -> _Next:
    if broker.fenced:
        if request.want_shut_down:
            return _Next(BrokerState.FENCED, BrokerState.SHUTDOWN_NOW)
        caught_up = request.current_metadata_offset >= registered_offset
        wanted = BrokerState.UNFENCED if not request.want_fence and caught_up else BrokerState.FENCED
        return _Next(BrokerState.FENCED, wanted)
    if heartbeats.is_shutting_down(broker.id):
        may_go = not leads_any(image, broker.id) and heartbeats.may_shut_down(image, broker.id)
        return _Next(
            BrokerState.CONTROLLED_SHUTDOWN,
            BrokerState.SHUTDOWN_NOW if may_go else BrokerState.CONTROLLED_SHUTDOWN,
        )
    if request.want_fence:
        return _Next(BrokerState.UNFENCED, BrokerState.SHUTDOWN_NOW if request.want_shut_down else BrokerState.FENCED)
    if request.want_shut_down:
        leads = leads_any(image, broker.id)
        return _Next(BrokerState.UNFENCED, BrokerState.CONTROLLED_SHUTDOWN if leads else BrokerState.SHUTDOWN_NOW)
    return _Next(BrokerState.UNFENCED, BrokerState.UNFENCED)


def _transition(image: MetadataImage, config: BrokerConfig, broker: BrokerImage, states: _Next) -> list[Message]:
    if states.current is states.next:
        return []
    if states.next is BrokerState.UNFENCED:
        return unfenced(image, config, broker.id)
    if states.next is BrokerState.CONTROLLED_SHUTDOWN:
        return begin_controlled_shutdown(image, config, broker.id)
    return [] if broker.fenced else fence_broker(image, config, broker.id)


def _directories_offline(image: MetadataImage, config: BrokerConfig, request: BrokerHeartbeatRequest) -> list[Message]:
    broker = image.brokers[request.broker_id]
    gone = [directory for directory in broker.directories if directory in request.offline_log_dirs]
    if not gone:
        return []
    rest = [directory for directory in broker.directories if directory not in gone]
    _log.warning("Broker %d lost the log directories %s", broker.id, ", ".join(map(str, gone)))
    return [
        *Elections(image, config).on_directories_offline(broker.id, gone),
        BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=rest),
    ]


def _differ(broker: BrokerImage, cordoned: list[Uuid]) -> bool:
    return broker.cordoned_directories is None or set(broker.cordoned_directories) != set(cordoned)
