"""The controllers behind the one way of a change: durable before they are answered, refused where nobody leads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.metadata import create, started, topic

from controller.elections import PREFERRED, UNCLEAN
from protocol.errors import ErrorCode
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.broker_registration import BrokerRegistrationRequest
from protocol.messages.controller_registration import ControllerRegistrationRequest
from protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from protocol.messages.unregister_broker import UnregisterBrokerRequest
from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest


def elections(kind: int = PREFERRED) -> ElectLeadersRequest:
    return ElectLeadersRequest(
        election_type=kind, topic_partitions=[TopicPartitions(topic="a", partitions=[0])], timeout_ms=30_000
    )


async def test_administrators_requests_are_answered(tmp_path: Path) -> None:
    controller = await started(tmp_path)
    await controller.create_topics(create(topic("a")))
    elected = await controller.elect_leaders(elections())
    assert elected.replica_election_results[0].partition_result[0].error_code == ErrorCode.ELECTION_NOT_NEEDED
    same = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="a", partitions=[ReassignablePartition(partition_index=0, replicas=[1])])]
    )
    moved = await controller.alter_partition_reassignments(same)
    assert moved.error_code == 0 and moved.responses[0].partitions[0].error_code == 0
    assert (await controller.list_partition_reassignments(ListPartitionReassignmentsRequest())).topics == []
    lowered = FeatureUpdateKey(feature="transaction.version", max_version_level=1, upgrade_type=2)
    updated = await controller.update_features(UpdateFeaturesRequest(feature_updates=[lowered]))
    assert updated.error_code == 0 and controller.image.features.finalized["transaction.version"] == 1
    gone = await controller.unregister_broker(UnregisterBrokerRequest(broker_id=9))
    assert (gone.error_code, gone.error_message) == (
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        "Broker ID 9 is not currently registered",
    )
    assert (await controller.unregister_broker(UnregisterBrokerRequest(broker_id=1))).error_code == 0
    assert controller.image.brokers == {}
    await controller.shutdown()


async def test_changes_survive_a_restart(tmp_path: Path) -> None:
    controller = await started(tmp_path)
    lowered = FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2)
    assert (await controller.update_features(UpdateFeaturesRequest(feature_updates=[lowered]))).error_code == 0
    await controller.shutdown()
    again = await started(tmp_path, register=False)
    assert "group.version" not in again.image.features.finalized
    await again.shutdown()


async def test_an_unknown_kind_of_election_is_refused_in_every_version(tmp_path: Path) -> None:
    controller = await started(tmp_path)
    answer = await controller.elect_leaders(elections(7))
    assert answer.error_code == ErrorCode.INVALID_REQUEST and answer.replica_election_results == []
    oldest = await controller.elect_leaders(elections(7), api_version=0)
    assert oldest.replica_election_results[0].partition_result[0].error_code == ErrorCode.INVALID_REQUEST
    await controller.shutdown()


async def test_a_controller_that_does_not_lead_says_so_to_everyone(tmp_path: Path) -> None:
    controller = await started(tmp_path)
    await controller.shutdown()
    answers: list[Any] = [
        await controller.elect_leaders(elections(UNCLEAN)),
        await controller.alter_partition_reassignments(AlterPartitionReassignmentsRequest()),
        await controller.list_partition_reassignments(ListPartitionReassignmentsRequest()),
        await controller.update_features(UpdateFeaturesRequest()),
        await controller.unregister_broker(UnregisterBrokerRequest(broker_id=1)),
        await controller.on_broker_registration(BrokerRegistrationRequest(broker_id=1)),
        await controller.on_broker_heartbeat(BrokerHeartbeatRequest(broker_id=1)),
        await controller.on_controller_registration(ControllerRegistrationRequest(controller_id=1)),
        await controller.on_alter_partition(AlterPartitionRequest(broker_id=1)),
        await controller.on_assign_replicas_to_directories(AssignReplicasToDirsRequest(broker_id=1)),
        await controller.on_allocate_producer_ids(AllocateProducerIdsRequest(broker_id=1)),
    ]
    assert {ErrorCode(answer.error_code) for answer in answers} == {ErrorCode.NOT_CONTROLLER}
    oldest = await controller.elect_leaders(elections(), api_version=0)
    assert oldest.replica_election_results[0].partition_result[0].error_code == ErrorCode.NOT_CONTROLLER


async def test_a_stale_broker_is_told_so(tmp_path: Path) -> None:
    controller = await started(tmp_path)
    answers: list[Any] = [
        await controller.on_broker_heartbeat(BrokerHeartbeatRequest(broker_id=1, broker_epoch=1)),
        await controller.on_alter_partition(AlterPartitionRequest(broker_id=1, broker_epoch=1)),
        await controller.on_assign_replicas_to_directories(AssignReplicasToDirsRequest(broker_id=1, broker_epoch=1)),
        await controller.on_allocate_producer_ids(AllocateProducerIdsRequest(broker_id=1, broker_epoch=1)),
    ]
    assert {ErrorCode(answer.error_code) for answer in answers} == {ErrorCode.STALE_BROKER_EPOCH}
    await controller.shutdown()
