"""Random histories of metadata records that a controller could have written: nothing is changed that does not exist."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from protocol.metadata.access_control_entry_record import AccessControlEntryRecord
from protocol.metadata.broker_registration_change_record import BrokerRegistrationChangeRecord
from protocol.metadata.clear_elr_record import ClearElrRecord
from protocol.metadata.client_quota_record import ClientQuotaRecord, EntityData
from protocol.metadata.config_record import ConfigRecord
from protocol.metadata.delegation_token_record import DelegationTokenRecord
from protocol.metadata.feature_level_record import FeatureLevelRecord
from protocol.metadata.fence_broker_record import FenceBrokerRecord
from protocol.metadata.no_op_record import NoOpRecord
from protocol.metadata.partition_change_record import PartitionChangeRecord
from protocol.metadata.partition_record import PartitionRecord
from protocol.metadata.producer_ids_record import ProducerIdsRecord
from protocol.metadata.register_broker_record import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord
from protocol.metadata.register_controller_record import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
)
from protocol.metadata.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from protocol.metadata.remove_delegation_token_record import RemoveDelegationTokenRecord
from protocol.metadata.remove_topic_record import RemoveTopicRecord
from protocol.metadata.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from protocol.metadata.topic_record import TopicRecord
from protocol.metadata.unfence_broker_record import UnfenceBrokerRecord
from protocol.metadata.unregister_broker_record import UnregisterBrokerRecord
from protocol.metadata.user_scram_credential_record import UserScramCredentialRecord
from protocol.schema import Message
from protocol.uuids import Uuid

FEATURES = ("group.version", "share.version", "transaction.version", "eligible.leader.replicas.version")
SETTINGS = ("retention.ms", "cleanup.policy", "segment.bytes")


class History:
    """Draws records one after the other, and remembers what they made."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.records: list[Message] = [FeatureLevelRecord(name="metadata.version", feature_level=30)]
        self._brokers: dict[int, int] = {}
        self._topics: dict[Uuid, str] = {}
        self._partitions: dict[Uuid, dict[int, list[int]]] = {}
        self._acls: list[Uuid] = []
        self._scram: list[tuple[int, str]] = []
        self._tokens: list[str] = []

    def extend(self, length: int) -> list[Message]:
        while len(self.records) < length:
            record = self.random.choice(_STEPS)(self)
            if record is not None:
                self.records.append(record)
        return self.records

    def _uuid(self) -> Uuid:
        return Uuid(self.random.randbytes(16))

    def _register_broker(self) -> Message:
        broker_id = self.random.randrange(6)
        self._brokers[broker_id] = len(self.records)
        return RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=self._uuid(),
            broker_epoch=len(self.records),
            end_points=[BrokerEndpoint(name="PLAINTEXT", host="b", port=self.random.randrange(1, 65536))],
            features=[BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30)],
            rack=self.random.choice([None, "r1", "r2"]),
            fenced=self.random.random() < 0.5,
            log_dirs=sorted(self._uuid() for _ in range(self.random.randrange(1, 3))),
            cordoned_log_dirs=self.random.choice([None, []]),
        )

    def _change_broker(self) -> Message | None:
        if not self._brokers:
            return None
        broker_id, epoch = self.random.choice(list(self._brokers.items()))
        match self.random.randrange(5):
            case 0:
                return FenceBrokerRecord(id=broker_id, epoch=epoch)
            case 1:
                return UnfenceBrokerRecord(id=broker_id, epoch=epoch)
            case 2:
                del self._brokers[broker_id]
                return UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch)
            case _:
                return BrokerRegistrationChangeRecord(
                    broker_id=broker_id,
                    broker_epoch=epoch,
                    fenced=self.random.choice([-1, 0, 1]),
                    in_controlled_shutdown=self.random.choice([0, 1]),
                    log_dirs=[self._uuid()] if self.random.random() < 0.3 else [],
                )

    def _register_controller(self) -> Message:
        return RegisterControllerRecord(
            controller_id=3000 + self.random.randrange(3),
            incarnation_id=self._uuid(),
            end_points=[ControllerEndpoint(name="CONTROLLER", host="c", port=9093)],
            features=[ControllerFeature(name="kraft.version", min_supported_version=0, max_supported_version=1)],
        )

    def _create_topic(self) -> Message:
        topic_id, name = self._uuid(), f"t{self.random.randrange(30)}"
        if name in self._topics.values():
            return NoOpRecord()
        self._topics[topic_id] = name
        self._partitions[topic_id] = {}
        return TopicRecord(name=name, topic_id=topic_id)

    def _create_partition(self) -> Message | None:
        if not self._topics:
            return None
        topic_id = self.random.choice(list(self._topics))
        partitions = self._partitions[topic_id]
        replicas = self.random.sample(range(6), self.random.randrange(1, 4))
        partitions[len(partitions)] = replicas
        return PartitionRecord(
            partition_id=len(partitions) - 1,
            topic_id=topic_id,
            replicas=replicas,
            isr=replicas[: self.random.randrange(1, len(replicas) + 1)],
            leader=replicas[0],
            leader_recovery_state=0,
            leader_epoch=0,
            partition_epoch=0,
            directories=[self._uuid() for _ in replicas],
        )

    def _change_partition(self) -> Message | None:
        topics = [topic_id for topic_id in self._topics if self._partitions[topic_id]]
        if not topics:
            return None
        topic_id = self.random.choice(topics)
        partition_id, replicas = self.random.choice(list(self._partitions[topic_id].items()))
        change = PartitionChangeRecord(partition_id=partition_id, topic_id=topic_id)
        if self.random.random() < 0.3:
            replicas = self.random.sample(range(6), self.random.randrange(1, 4))
            self._partitions[topic_id][partition_id] = replicas
            change.replicas, change.directories = replicas, [self._uuid() for _ in replicas]
            change.adding_replicas, change.removing_replicas = replicas[:1], []
        if self.random.random() < 0.6:
            change.isr = [r for r in replicas if self.random.random() < 0.7]
        change.leader = self.random.choice([-2, -1, *replicas])
        if self.random.random() < 0.4:
            change.eligible_leader_replicas = self.random.sample(replicas, 1)
            change.last_known_elr = self.random.choice([[], replicas[:1]])
        change.leader_recovery_state = self.random.choice([-1, 0, 1])
        return change

    def _remove_topic(self) -> Message | None:
        if not self._topics or self.random.random() < 0.6:
            return None
        topic_id = self.random.choice(list(self._topics))
        del self._topics[topic_id], self._partitions[topic_id]
        return RemoveTopicRecord(topic_id=topic_id)

    def _clear_elr(self) -> Message | None:
        return ClearElrRecord(topic_name=self.random.choice(["", *self._topics.values()]))

    def _configure(self) -> Message:
        resource = self.random.choice([(4, ""), (4, "1"), (32, "g"), *((2, name) for name in self._topics.values())])
        value = self.random.choice([None, "1", "2"])
        name = self.random.choice(SETTINGS)
        return ConfigRecord(resource_type=resource[0], resource_name=resource[1], name=name, value=value)

    def _finalize(self) -> Message:
        return FeatureLevelRecord(name=self.random.choice(FEATURES), feature_level=self.random.randrange(2))

    def _give_producer_ids(self) -> Message:
        return ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=1000 * len(self.records))

    def _quota(self) -> Message:
        kinds = self.random.sample(["user", "client-id"], self.random.randrange(1, 3))
        names: list[str | None] = [None, "u1", "u2"]
        return ClientQuotaRecord(
            entity=[EntityData(entity_type=kind, entity_name=self.random.choice(names)) for kind in kinds],
            key=self.random.choice(["producer_byte_rate", "consumer_byte_rate"]),
            value=float(self.random.randrange(1, 100)),
            remove=self.random.random() < 0.3,
        )

    def _security(self) -> Message:
        match self.random.randrange(6):
            case 0 if self._acls:
                return RemoveAccessControlEntryRecord(id=self._acls.pop())
            case 1 if self._scram:
                mechanism, name = self._scram.pop()
                return RemoveUserScramCredentialRecord(name=name, mechanism=mechanism)
            case 2 if self._tokens:
                return RemoveDelegationTokenRecord(token_id=self._tokens.pop())
            case 3:
                self._scram.append((self.random.randrange(1, 3), f"u{len(self.records)}"))
                mechanism, name = self._scram[-1]
                return UserScramCredentialRecord(
                    name=name, mechanism=mechanism, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
                )
            case 4:
                self._tokens.append(f"token{len(self.records)}")
                return DelegationTokenRecord(
                    owner="User:a",
                    requester="User:b",
                    renewers=["User:c"],
                    issue_timestamp=1,
                    max_timestamp=3,
                    expiration_timestamp=2,
                    token_id=self._tokens[-1],
                )
            case _:
                self._acls.append(self._uuid())
                return AccessControlEntryRecord(
                    id=self._acls[-1],
                    resource_type=2,
                    resource_name="t",
                    pattern_type=3,
                    principal="User:a",
                    host="*",
                    operation=3,
                    permission_type=3,
                )


_STEPS: list[Callable[[History], Message | None]] = [
    History._register_broker,
    History._change_broker,
    History._change_broker,
    History._register_controller,
    History._create_topic,
    History._create_topic,
    History._create_partition,
    History._create_partition,
    History._create_partition,
    History._change_partition,
    History._change_partition,
    History._change_partition,
    History._remove_topic,
    History._clear_elr,
    History._configure,
    History._configure,
    History._finalize,
    History._give_producer_ids,
    History._quota,
    History._security,
]


def history(random: Random, length: int) -> list[Message]:
    return History(random).extend(length)
