"""What a broker with many partitions asks of the controller goes in requests of bounded size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.metadata import create, started, topic
from support.quorum_in_process import until

from broker.controller_channel import ControllerChannel
from broker.directory_assignment import MAX_REPLICAS_PER_REQUEST, DirectoryAssignment
from broker.lifecycle import BrokerLifecycle
from broker.network.client import NodeClients
from broker.replication.isr_updates import MAX_CHANGES_PER_REQUEST, IsrUpdates
from broker.replication.leader import IsrChange, IsrMember, IsrResult
from controller.endpoints import broker_endpoints
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from protocol.uuids import Uuid

TOPIC = Uuid(b"t" * 16)
CHANGE = IsrChange(1, 1, (IsrMember(1, 11),))
PARTITIONS = 5000


class Waiting:
    """A partition as the updates see it: it waits for its change until that is decided."""

    topic_id = TOPIC

    def __init__(self, index: int) -> None:
        self.index = index
        self.results: list[IsrResult] = []

    def awaits(self, change: IsrChange) -> bool:
        return not self.results

    def on_isr_result(self, change: IsrChange, result: IsrResult) -> None:
        self.results.append(result)


def decided(request: AlterPartitionRequest) -> AlterPartitionResponse:
    return AlterPartitionResponse(
        topics=[
            ResponseTopicData(
                topic_id=asked.topic_id,
                partitions=[
                    ResponsePartitionData(
                        partition_index=part.partition_index, leader_epoch=1, partition_epoch=2, isr=[1]
                    )
                    for part in asked.partitions
                ],
            )
            for asked in request.topics
        ]
    )


async def test_changes_of_in_sync_sets() -> None:
    sizes: list[int] = []

    async def ask(request: AlterPartitionRequest, timeout_ms: float) -> AlterPartitionResponse:
        sizes.append(sum(len(asked.partitions) for asked in request.topics))
        if len(sizes) == 1:
            return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        return decided(request)

    updates = IsrUpdates(1, lambda: 7, ask)
    partitions: list[Any] = [Waiting(index) for index in range(PARTITIONS)]
    for partition in partitions:
        updates.submit(partition, CHANGE)
    await until(lambda: all(partition.results for partition in partitions))
    await updates.stop()
    assert sizes[0] == max(sizes) == MAX_CHANGES_PER_REQUEST == 2250
    assert sum(sizes) == PARTITIONS + sizes[0], "what was refused is asked for again, and nothing else twice"
    assert all(len(partition.results) == 1 for partition in partitions)


async def test_directories_of_replicas(tmp_path: Path) -> None:
    sizes: list[int] = []

    class Channel(ControllerChannel):
        async def ask(self, request: Any, *arguments: Any, **options: Any) -> Any:
            if isinstance(request, AssignReplicasToDirsRequest):
                sizes.append(sum(len(one.partitions) for at in request.directories for one in at.topics))
            return await super().ask(request, *arguments, **options)

    controller = await started(tmp_path / "1", register=False, log_dirs=f"{tmp_path}/1,{tmp_path}/2")
    directories = list(controller.node.directory_ids.values())
    channel = Channel(controller, NodeClients("test"))
    lifecycle = BrokerLifecycle(
        controller.effective_config,
        controller,
        channel,
        offline_directories=list,
        cordoned_directories=list,
    )
    try:
        await lifecycle.register(broker_endpoints(controller.effective_config), directories, -1)
        await lifecycle.unfence()
        assert (await controller.create_topics(create(topic("t", PARTITIONS)))).topics[0].error_code == 0
        topic_id = controller.image.topics_by_name["t"].topic_id
        assignment = DirectoryAssignment(lifecycle, controller, channel)
        for index in range(PARTITIONS):
            assignment.assign((topic_id, index), directories[index % 2])
        await until(lambda: _told(controller) == [(directories[index % 2],) for index in range(PARTITIONS)], 60)
        await assignment.stop()
    finally:
        await lifecycle.stop()
        await controller.shutdown()
    assert sizes == [MAX_REPLICAS_PER_REQUEST, MAX_REPLICAS_PER_REQUEST, 500]


def _told(controller: Any) -> list[tuple[Uuid, ...]]:
    parts = controller.image.topics_by_name["t"].partitions
    return [parts[index].directories for index in range(PARTITIONS)]
