"""Changes of topics and configurations as the active controller takes them: the other half of ``changes``."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, TypeVar

from config.broker import BrokerConfig
from controller import configs, partitions, refusals, topics
from controller.image import MetadataImage
from controller.outcome import Outcome
from protocol.errors import ApiError
from protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

R = TypeVar("R")


class TopicChanges:
    if TYPE_CHECKING:  # what the controller supplies
        random: Random

        @property
        def appended_config(self) -> BrokerConfig: ...
        async def _change(self, decide: Callable[[MetadataImage], Outcome[R]], timeout_ms: int | None = None) -> R: ...

    async def create_topics(
        self, request: CreateTopicsRequest, *, principal: str = "User:ANONYMOUS"
    ) -> CreateTopicsResponse:
        def decide(image: MetadataImage) -> Outcome[CreateTopicsResponse]:
            return topics.create_topics(image, request, config=self.appended_config, random=self.random)

        try:
            return await self._change(decide, request.timeout_ms)
        except ApiError as error:
            return refusals.refuse_create_topics(request, error)

    async def delete_topics(
        self, request: DeleteTopicsRequest, *, principal: str = "User:ANONYMOUS", api_version: int = 6
    ) -> DeleteTopicsResponse:
        def decide(image: MetadataImage) -> Outcome[DeleteTopicsResponse]:
            return topics.delete_topics(image, request, config=self.appended_config, api_version=api_version)

        try:
            return await self._change(decide, request.timeout_ms)
        except ApiError as error:
            return refusals.refuse_delete_topics(request, error)

    async def create_partitions(
        self, request: CreatePartitionsRequest, *, principal: str = "User:ANONYMOUS"
    ) -> CreatePartitionsResponse:
        def decide(image: MetadataImage) -> Outcome[CreatePartitionsResponse]:
            return partitions.create_partitions(image, request, random=self.random)

        try:
            return await self._change(decide, request.timeout_ms)
        except ApiError as error:
            return refusals.refuse_create_partitions(request, error)

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, *, principal: str = "User:ANONYMOUS"
    ) -> IncrementalAlterConfigsResponse:
        def decide(image: MetadataImage) -> Outcome[IncrementalAlterConfigsResponse]:
            return configs.incremental_alter_configs(image, request, config=self.appended_config)

        try:
            return await self._change(decide)
        except ApiError as error:
            return refusals.refuse_incremental_alter_configs(request, error)

    async def alter_configs(
        self, request: AlterConfigsRequest, *, principal: str = "User:ANONYMOUS"
    ) -> AlterConfigsResponse:
        def decide(image: MetadataImage) -> Outcome[AlterConfigsResponse]:
            return configs.alter_configs(image, request, config=self.appended_config)

        try:
            return await self._change(decide)
        except ApiError as error:
            return refusals.refuse_alter_configs(request, error)
