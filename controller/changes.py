"""Changes of the cluster as the active controller takes them: requests in, responses out, once they are durable.

A mixin of ``Controller``: each method hands the request to its state machine, through the one way of a change, and
turns a refusal of the whole request into a response. The controller supplies what is declared at the top.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

from config.broker import BrokerConfig
from controller import (
    alter_partition,
    elections,
    feature_updates,
    heartbeats,
    producer_ids,
    reassignments,
    registrations,
    replica_directories,
)
from controller.image import MetadataImage
from controller.outcome import Outcome
from controller.probes import BrokerProbes
from protocol.errors import ApiError, ErrorCode
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from protocol.schema import Message

R = TypeVar("R")
M = TypeVar("M", bound=Message)

ANYONE = "User:ANONYMOUS"


class ClusterChanges:
    if TYPE_CHECKING:  # what the controller supplies
        image: MetadataImage
        heartbeats: heartbeats.BrokerHeartbeats
        probes: BrokerProbes

        @property
        def cluster_id(self) -> str: ...
        @property
        def controller_id(self) -> int: ...
        @property
        def appended_config(self) -> BrokerConfig: ...
        @property
        def next_offset(self) -> int:
            """Where the next record goes in the log."""
            ...

        @property
        def voter_ids(self) -> Collection[int]: ...
        @property
        def kraft_version(self) -> int: ...
        def upgrade_kraft_version(self, level: int, validate_only: bool) -> None: ...
        def monotonic_ms(self) -> int: ...
        def _check_active(self) -> None: ...
        async def _change(
            self,
            decide: Callable[[MetadataImage], Outcome[R]],
            timeout_ms: int | None = None,
            *,
            limit: int | None = ...,
        ) -> R:
            """``limit`` is of records, by default the one of users' requests."""
            ...

    # Requests of administrators

    async def elect_leaders(
        self, request: ElectLeadersRequest, *, principal: str = ANYONE, api_version: int = 2
    ) -> ElectLeadersResponse:
        def decide(image: MetadataImage) -> Outcome[ElectLeadersResponse]:
            return elections.elect_leaders(image, request, config=self.appended_config)

        try:
            return await self._change(decide, request.timeout_ms)
        except ApiError as error:
            return _refused_elections(request, error, api_version)

    async def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest, *, principal: str = ANYONE
    ) -> AlterPartitionReassignmentsResponse:
        def decide(image: MetadataImage) -> Outcome[AlterPartitionReassignmentsResponse]:
            return reassignments.alter_partition_reassignments(image, request, config=self.appended_config)

        try:
            return await self._change(decide, request.timeout_ms)
        except ApiError as error:
            return _refused(AlterPartitionReassignmentsResponse, error)

    async def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest, *, principal: str = ANYONE
    ) -> ListPartitionReassignmentsResponse:
        """A question, but one that only the active controller can answer up to date."""
        try:
            self._check_active()
        except ApiError as error:
            return _refused(ListPartitionReassignmentsResponse, error)
        return reassignments.list_partition_reassignments(self.image, request)

    async def update_features(
        self, request: UpdateFeaturesRequest, *, principal: str = ANYONE, api_version: int = 2
    ) -> UpdateFeaturesResponse:
        def decide(image: MetadataImage) -> Outcome[UpdateFeaturesResponse]:
            return feature_updates.update_features(
                image,
                request,
                config=self.appended_config,
                node_id=self.controller_id,
                voters=self.voter_ids,
                kraft_version=self.kraft_version,
                upgrade_kraft_version=self.upgrade_kraft_version,
                api_version=api_version,
            )

        try:
            return await self._change(decide, request.timeout_ms)
        except ApiError as error:
            return _refused(UpdateFeaturesResponse, error)

    async def unregister_broker(
        self, request: UnregisterBrokerRequest, *, principal: str = ANYONE
    ) -> UnregisterBrokerResponse:
        def decide(image: MetadataImage) -> Outcome[UnregisterBrokerResponse]:
            return registrations.unregister(image, request, config=self.appended_config)

        try:
            return await self._change(decide)
        except ApiError as error:
            return _refused(UnregisterBrokerResponse, error)

    # Requests of brokers and controllers: as many records as it takes

    async def on_broker_registration(
        self, request: BrokerRegistrationRequest, *, api_version: int = 4
    ) -> BrokerRegistrationResponse:
        def decide(image: MetadataImage) -> Outcome[BrokerRegistrationResponse]:
            return registrations.register(
                image,
                request,
                config=self.appended_config,
                cluster_id=self.cluster_id,
                kraft_version=self.kraft_version,
                heartbeats=self.heartbeats,
                now_ms=self.monotonic_ms(),
                next_offset=self.next_offset,
                api_version=api_version,
            )

        try:
            return await self._change(decide, limit=None)
        except ApiError as error:
            if error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                self.probes.suspect_unless_starting(request.broker_id)
            return _refused(BrokerRegistrationResponse, error)

    async def on_broker_heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        """The contact counts at once, however long the controller is busy with the rest."""
        try:
            self._check_active()
            self.heartbeats.on_contact(request.broker_id, request.broker_epoch, self.monotonic_ms())
            response = await self._change(
                lambda image: heartbeats.broker_heartbeat(
                    image, request, config=self.appended_config, heartbeats=self.heartbeats
                ),
                limit=None,
            )
            if response.should_shut_down:  # it will not be heard of again: whoever starts it anew need not wait
                self.heartbeats.end_session(request.broker_id, request.broker_epoch)
            return response
        except ApiError as error:
            return _refused(BrokerHeartbeatResponse, error)

    async def on_controller_registration(
        self, request: ControllerRegistrationRequest
    ) -> ControllerRegistrationResponse:
        try:
            return await self._change(lambda image: registrations.register_controller(image, request))
        except ApiError as error:
            return _refused(ControllerRegistrationResponse, error)

    async def on_alter_partition(
        self, request: AlterPartitionRequest, *, api_version: int = 3
    ) -> AlterPartitionResponse:
        def decide(image: MetadataImage) -> Outcome[AlterPartitionResponse]:
            return alter_partition.alter_partition(image, request, config=self.appended_config, api_version=api_version)

        try:
            return await self._change(decide, limit=None)
        except ApiError as error:
            return _refused(AlterPartitionResponse, error)

    async def on_assign_replicas_to_directories(
        self, request: AssignReplicasToDirsRequest
    ) -> AssignReplicasToDirsResponse:
        def decide(image: MetadataImage) -> Outcome[AssignReplicasToDirsResponse]:
            return replica_directories.assign_replicas_to_directories(image, request, config=self.appended_config)

        try:
            return await self._change(decide, limit=None)
        except ApiError as error:
            return _refused(AssignReplicasToDirsResponse, error)

    async def on_allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        try:
            return await self._change(lambda image: producer_ids.allocate_producer_ids(image, request))
        except ApiError as error:
            return _refused(AllocateProducerIdsResponse, error)


def _refused(response: type[M], error: ApiError) -> M:
    """These responses have an error for the whole request; most of them a message, too."""
    made: Any = response()
    made.error_code = error.code
    if hasattr(made, "error_message"):
        made.error_message = error.message or None
    return made  # type: ignore[no-any-return]


def _refused_elections(request: ElectLeadersRequest, error: ApiError, api_version: int) -> ElectLeadersResponse:
    """Version 0 has no error for the whole: every partition that was asked for gets it."""
    results = []
    if api_version == 0:
        results = [
            ReplicaElectionResult(
                topic=asked.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=error.code, error_message=error.message or None)
                    for index in asked.partitions
                ],
            )
            for asked in request.topic_partitions or ()
        ]
    code = ErrorCode.NONE if api_version == 0 else error.code
    return ElectLeadersResponse(error_code=code, replica_election_results=results)
