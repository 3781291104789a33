"""Registration and life of remote brokers: incarnations, sessions, fencing, controlled shutdown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.metadata import broker_record, cluster, image_of, node_config
from support.partitions import directory, with_partition

from controller import heartbeats as beats
from controller import registrations
from controller.delta import apply_records
from controller.features import SUPPORTED_FEATURES
from controller.heartbeats import BrokerHeartbeats
from controller.image import NO_LEADER, MetadataImage
from controller.outcome import Outcome
from protocol.errors import ApiError, ErrorCode
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from protocol.messages.controller_registration import ControllerRegistrationRequest
from protocol.messages.unregister_broker import UnregisterBrokerRequest
from protocol.metadata.broker_registration_change_record import BrokerRegistrationChangeRecord
from protocol.metadata.feature_level_record import FeatureLevelRecord
from protocol.metadata.register_broker_record import RegisterBrokerRecord
from protocol.schema import Message
from protocol.uuids import DIRECTORY_LOST, Uuid

CONFIG = node_config(Path("/nowhere"))
CLUSTER = "cluster-1"


class Active:
    """An active controller without log or clock: images as appended, and the heartbeats that follow them."""

    def __init__(self, image: MetadataImage, now_ms: int = 1000) -> None:
        self.image = image
        self.now_ms = now_ms
        self.heartbeats = BrokerHeartbeats(9000, 2000)
        self.heartbeats.activate(image, now_ms)

    def append(self, records: list[Message]) -> None:
        if records:
            offset = self.image.offset + len(records)
            self.image, delta = apply_records(self.image, records, offset=offset, epoch=1)
            self.heartbeats.on_appended(self.image, delta)

    def register(self, broker_id: int, incarnation: int, api_version: int = 4, **fields: Any) -> int:
        made = self.registration(broker_id, incarnation, api_version, **fields)
        self.append(made.records)
        return int(made.response.broker_epoch)

    def registration(self, broker_id: int, incarnation: int, api_version: int = 4, **fields: Any) -> Outcome[Any]:
        values: dict[str, Any] = {
            "cluster_id": CLUSTER,
            "log_dirs": [directory(broker_id)],
            "listeners": [Listener(name="PLAINTEXT", host="h", port=9, security_protocol=0)],
            "features": supported(),
            **fields,
        }
        request = BrokerRegistrationRequest(
            broker_id=broker_id, incarnation_id=Uuid(bytes([incarnation]) * 16), **values
        )
        return registrations.register(
            self.image,
            request,
            config=CONFIG,
            cluster_id=CLUSTER,
            kraft_version=1,
            heartbeats=self.heartbeats,
            now_ms=self.now_ms,
            next_offset=self.image.offset + 1,
            api_version=api_version,
        )

    def beat(self, broker_id: int, offset: int | None = None, **fields: Any) -> BrokerHeartbeatResponse:
        epoch = fields.pop("epoch", None)
        if epoch is None:
            epoch = self.image.brokers[broker_id].epoch
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=epoch,
            current_metadata_offset=self.image.offset if offset is None else offset,
            **fields,
        )
        self.heartbeats.on_contact(broker_id, epoch, self.now_ms)
        made = beats.broker_heartbeat(self.image, request, config=CONFIG, heartbeats=self.heartbeats)
        self.append(made.records)
        if made.response.should_shut_down:
            self.heartbeats.end_session(broker_id, epoch)
        return made.response

    def fence_dead(self, broker_id: int, seen: tuple[int, int]) -> bool:
        made = beats.fence_dead(self.image, broker_id, seen, config=CONFIG, heartbeats=self.heartbeats)
        self.append(made.records)
        if made.response:
            self.heartbeats.end_session(broker_id, seen[0])
        return made.response

    def fence_expired(self) -> list[int]:
        made = beats.fence_expired(self.image, config=CONFIG, heartbeats=self.heartbeats, now_ms=self.now_ms)
        self.append(made.records)
        for broker_id, epoch in made.response:
            self.heartbeats.end_session(broker_id, epoch)
        return [broker_id for broker_id, _ in made.response]


def supported(**levels: tuple[int, int]) -> list[Feature]:
    ranges = {name: (r.min_version, r.max_version) for name, r in SUPPORTED_FEATURES.items()}
    ranges.update({name.replace("_", "."): value for name, value in levels.items()})
    return [Feature(name=name, min_supported_version=a, max_supported_version=b) for name, (a, b) in ranges.items()]


def refused(code: ErrorCode, sentence: str = "") -> Any:
    return pytest.raises(ApiError, match=f"^{code.name}: .*{sentence}")


def test_a_broker_registers_catches_up_and_is_unfenced() -> None:
    active = Active(cluster())
    epoch = active.register(4, 1, rack="r1")
    broker = active.image.brokers[4]
    assert broker.fenced and broker.epoch == epoch == active.image.offset and broker.rack == "r1"
    behind = active.beat(4, offset=epoch - 1)
    assert not behind.is_caught_up and behind.is_fenced and active.image.brokers[4].fenced
    waiting = active.beat(4, want_fence=True)
    assert waiting.is_caught_up and waiting.is_fenced
    ready = active.beat(4)
    assert ready.is_caught_up and not ready.is_fenced and not ready.should_shut_down
    assert active.image.brokers[4].is_active


def test_a_second_live_broker_of_the_same_id_is_refused_until_the_session_is_over() -> None:
    active = Active(cluster(broker_record(4)))
    with refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION, "Another broker is registered with that broker id."):
        active.register(4, 9)
    active.now_ms += 9000
    with refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION):
        active.register(4, 9)
    active.now_ms += 1
    first = active.image.brokers[4].epoch
    assert active.register(4, 9) == active.image.offset != first
    with refused(ErrorCode.STALE_BROKER_EPOCH, f"but got broker epoch {first}"):
        active.beat(4, epoch=first)


def test_the_same_broker_started_again_waits_for_the_end_of_its_session() -> None:
    """The same addresses and directories prove nothing: so has the copy of a machine. Who knocks at the first one's
    door and finds nobody ends its session."""
    active = Active(cluster())
    first = active.register(4, 1)
    active.beat(4)
    with refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION):
        active.register(4, 2)
    seen = active.heartbeats.contact(4)
    assert seen is not None and active.fence_dead(4, seen)
    second = active.register(4, 2)
    assert second > first and active.image.brokers[4].fenced
    with refused(ErrorCode.STALE_BROKER_EPOCH, f"but got broker epoch {first}"):
        active.beat(4, epoch=first)
    with refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION):
        active.beat(4)
        active.register(4, 1)


def test_a_registration_without_a_heartbeat_is_no_session() -> None:
    """A broker that dies before its first heartbeat does not keep its next start out."""
    active = Active(cluster())
    first = active.register(4, 1)
    second = active.register(4, 2)
    assert second > first and active.image.brokers[4].incarnation_id == Uuid(bytes([2]) * 16)


def test_the_same_incarnation_amends_its_registration_and_keeps_epoch_and_state() -> None:
    active = Active(cluster())
    epoch = active.register(4, 1)
    active.beat(4)
    assert active.register(4, 1, rack="new") == epoch
    broker = active.image.brokers[4]
    assert broker.rack == "new" and broker.is_active and broker.epoch == epoch


REFUSED: list[tuple[dict[str, Any], ErrorCode, str]] = [
    ({"cluster_id": "x"}, ErrorCode.INCONSISTENT_CLUSTER_ID, "Expected cluster ID cluster-1, but got cluster ID x"),
    ({"is_migrating_zk_broker": True}, ErrorCode.BROKER_ID_NOT_REGISTERED, "registering ZK brokers"),
    ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION, "No directories specified in request"),
    ({"log_dirs": [DIRECTORY_LOST]}, ErrorCode.INVALID_REGISTRATION, "Reserved directory ID in request"),
    ({"log_dirs": [directory(4)] * 2}, ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID in request"),
    ({"log_dirs": [directory(1)]}, ErrorCode.INVALID_REGISTRATION, "Broker 1 is already registered with directory"),
    ({"features": []}, ErrorCode.INVALID_REGISTRATION, "Request features do not contain 'metadata.version'"),
    (
        {"features": supported(metadata_version=(7, 29))},
        ErrorCode.UNSUPPORTED_VERSION,
        "finalized version 30 of metadata.version. The broker wants a version between 7 and 29, inclusive.",
    ),
    (
        {"features": [f for f in supported() if f.name != "group.version"]},
        ErrorCode.UNSUPPORTED_VERSION,
        "finalized version 1 of group.version. The broker wants a version between 0 and 0",
    ),
    ({"features": supported(kraft_version=(0, 0))}, ErrorCode.UNSUPPORTED_VERSION, "version 1 of kraft.version"),
]


@pytest.mark.parametrize(("fields", "code", "sentence"), REFUSED)
def test_a_registration_that_cannot_be_is_refused(fields: dict[str, Any], code: ErrorCode, sentence: str) -> None:
    active = Active(cluster(broker_record(1)))
    with refused(code, sentence):
        active.register(4, 1, **fields)
    assert 4 not in active.image.brokers


def test_how_a_broker_stopped_decides_whether_it_stays_eligible() -> None:
    image = with_partition(cluster(broker_record(1)), 1)
    for previous, api_version, elr in ((101, 4, (1,)), (77, 4, ()), (101, 2, ())):
        active = Active(image, now_ms=0)
        active.now_ms = 20_000  # the session of the process that is gone has ended
        active.register(1, 9, api_version, previous_broker_epoch=previous)
        partition = active.image.partition("t", 0)
        assert partition is not None and partition.leader == NO_LEADER
        assert (partition.isr, partition.elr) == ((), elr)


def test_a_silent_broker_is_fenced_and_others_lead() -> None:
    active = Active(with_partition(cluster(broker_record(1), broker_record(2)), 1, 2))
    assert active.heartbeats.next_deadline_ms() == 1000 + 9001
    active.now_ms = 6000
    active.beat(2)
    active.now_ms = 10_000
    assert active.fence_expired() == []
    active.now_ms = 10_001
    assert active.fence_expired() == [1] and active.fence_expired() == []
    partition = active.image.partition("t", 0)
    assert partition is not None and partition.leader == 2 and partition.isr == (2,)
    assert active.image.brokers[1].fenced and not active.image.brokers[2].fenced
    assert active.heartbeats.next_deadline_ms() == 6000 + 9001
    back = active.beat(1)
    assert not back.is_fenced and active.image.brokers[1].is_active


def test_two_brokers_that_fall_silent_together_leave_no_leader() -> None:
    active = Active(with_partition(cluster(broker_record(1), broker_record(2)), 1, 2))
    active.now_ms = 20_000
    assert active.fence_expired() == [1, 2]
    partition = active.image.partition("t", 0)
    assert partition is not None and partition.leader == NO_LEADER and set(partition.elr) <= {1, 2}


def test_a_controlled_shutdown_waits_until_the_others_know_the_new_leaders() -> None:
    active = Active(with_partition(cluster(broker_record(1), broker_record(2), broker_record(3)), 1, 2, 3))
    for broker_id in (1, 2, 3):
        active.beat(broker_id)
    leaving = active.beat(1, want_shut_down=True)
    assert not leaving.should_shut_down and not leaving.is_fenced
    assert active.image.brokers[1].in_controlled_shutdown
    partition = active.image.partition("t", 0)
    assert partition is not None and partition.leader == 2 and partition.isr == (2, 3)
    moved = active.image.offset
    active.beat(2, offset=moved)
    assert not active.beat(1, want_shut_down=True).should_shut_down  # 3 has not read it yet
    active.beat(3, offset=moved)
    gone = active.beat(1, want_shut_down=True)
    assert gone.should_shut_down and gone.is_fenced and active.image.brokers[1].fenced


def test_a_broker_that_leads_nothing_or_is_fenced_may_stop_at_once() -> None:
    active = Active(with_partition(cluster(broker_record(1), broker_record(2), broker_record(3, fenced=True)), 1, 2))
    assert active.beat(2, want_shut_down=True).should_shut_down
    assert active.image.brokers[2].fenced and not active.image.brokers[2].in_controlled_shutdown
    assert active.beat(3, want_shut_down=True).should_shut_down
    assert active.register(2, 77) == active.image.offset, "its next start need not wait for the old session to expire"
    assert active.image.brokers[2].incarnation_id == Uuid(bytes([77]) * 16)


def test_the_session_of_a_broker_that_may_stop_is_over() -> None:
    """Started again at once, with other listeners say, it is taken: nobody else can have its id."""
    active = Active(cluster(broker_record(1), broker_record(2)))
    assert active.beat(2, want_shut_down=True).should_shut_down
    assert active.register(2, 9, listeners=[]) > 0


def test_brokers_that_miss_a_heartbeat_are_named_once() -> None:
    active = Active(cluster(broker_record(1), broker_record(2)))
    heartbeats = active.heartbeats
    assert heartbeats.next_suspicion_ms() == 4000 and heartbeats.newly_silent(3999) == []
    active.now_ms = 2000
    active.beat(1)
    assert heartbeats.newly_silent(4000) == [2] and heartbeats.newly_silent(4001) == []
    assert heartbeats.next_suspicion_ms() == 5000
    active.now_ms = 4500
    active.beat(2)
    assert heartbeats.newly_silent(7499) == [1] and heartbeats.newly_silent(7500) == [2]


def test_a_dead_broker_is_fenced_unless_it_was_heard_of_meanwhile() -> None:
    active = Active(with_partition(cluster(broker_record(1), broker_record(2)), 1, 2))
    seen = active.heartbeats.contact(1)
    assert seen is not None
    active.now_ms += 1
    active.beat(1)
    assert not active.fence_dead(1, seen) and active.image.brokers[1].is_active
    seen = active.heartbeats.contact(1)
    assert seen is not None and active.fence_dead(1, seen)
    partition = active.image.partition("t", 0)
    assert active.image.brokers[1].fenced and partition is not None and partition.leader == 2
    assert active.heartbeats.contact(1) is None and active.fence_expired() == []
    assert not active.fence_dead(1, seen)


def test_a_broker_may_ask_to_be_fenced() -> None:
    active = Active(with_partition(cluster(broker_record(1), broker_record(2)), 1, 2))
    assert active.beat(1, want_fence=True).is_fenced
    partition = active.image.partition("t", 0)
    assert active.image.brokers[1].fenced and partition is not None and partition.leader == 2
    stopping = active.beat(2, want_fence=True, want_shut_down=True)
    assert stopping.should_shut_down and active.image.brokers[2].fenced


def test_a_new_controller_gives_everyone_a_whole_session_and_goes_on_with_a_shutdown() -> None:
    before = Active(with_partition(cluster(broker_record(1), broker_record(2)), 1, 2))
    before.beat(2)
    before.beat(1, want_shut_down=True)
    after = Active(before.image, now_ms=500_000)
    assert after.fence_expired() == []
    assert not after.beat(1, want_shut_down=True).should_shut_down  # nothing is known of broker 2 yet
    after.beat(2)
    assert after.beat(1, want_shut_down=True).should_shut_down


def test_lost_directories_cost_the_partitions_they_held() -> None:
    lost, kept = Uuid(b"l" * 16), Uuid(b"k" * 16)
    image = cluster(broker_record(1, log_dirs=[kept, lost]), broker_record(2))
    image = with_partition(image, 1, 2, directories=[lost, directory(2)])
    active = Active(image)
    active.beat(1, offline_log_dirs=[lost, Uuid(b"?" * 16)])
    partition = active.image.partition("t", 0)
    assert partition is not None and partition.leader == 2 and partition.isr == (2,)
    assert active.image.brokers[1].directories == (kept,)
    settled = active.image.offset
    active.beat(1, offline_log_dirs=[lost])
    assert active.image.offset == settled


def test_cordoned_directories_are_remembered_when_they_change() -> None:
    active = Active(cluster(broker_record(1)))
    active.beat(1, cordoned_log_dirs=None)
    assert active.image.brokers[1].cordoned_directories is None
    active.beat(1, cordoned_log_dirs=[directory(1)])
    assert active.image.brokers[1].cordoned_directories == (directory(1),)
    settled = active.image.offset
    active.beat(1, cordoned_log_dirs=[directory(1)])
    assert active.image.offset == settled


def test_an_unregistered_broker_is_forgotten() -> None:
    active = Active(with_partition(cluster(broker_record(1), broker_record(2)), 1, 2))
    made = registrations.unregister(active.image, UnregisterBrokerRequest(broker_id=1), config=CONFIG)
    active.append(made.records)
    assert 1 not in active.image.brokers and made.response.error_code == 0
    partition = active.image.partition("t", 0)
    assert partition is not None and partition.leader == 2 and partition.isr == (2,)
    with refused(ErrorCode.BROKER_ID_NOT_REGISTERED, "Broker ID 1 is not currently registered"):
        registrations.unregister(active.image, UnregisterBrokerRequest(broker_id=1), config=CONFIG)
    with refused(ErrorCode.STALE_BROKER_EPOCH, "No broker registration found for broker id 1"):
        active.beat(1, epoch=101)


def test_controllers_register_from_the_level_on_that_has_the_record() -> None:
    request = ControllerRegistrationRequest(controller_id=7, incarnation_id=Uuid(b"c" * 16))
    image = image_of(registrations.register_controller(cluster(), request).records, cluster())
    assert image.controllers[7].incarnation_id == Uuid(b"c" * 16)
    old = image_of([FeatureLevelRecord(name="metadata.version", feature_level=14)])
    with refused(ErrorCode.UNSUPPORTED_VERSION, "too old to support controller registrations"):
        registrations.register_controller(old, request)


def test_unfencing_writes_the_registration_first_and_the_elections_after_it() -> None:
    active = Active(with_partition(cluster(broker_record(1)), 1))
    active.beat(1, want_fence=True)
    request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=101, current_metadata_offset=active.image.offset)
    made = beats.broker_heartbeat(active.image, request, config=CONFIG, heartbeats=active.heartbeats)
    assert isinstance(made.records[0], BrokerRegistrationChangeRecord) and len(made.records) == 2
    assert not any(isinstance(record, RegisterBrokerRecord) for record in made.records)
