"""A whole request refused: each of its parts gets the error, because these responses have no error of their own."""

from __future__ import annotations

from protocol.errors import ApiError
from protocol.messages import alter_configs as legacy
from protocol.messages import incremental_alter_configs as incremental
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse


def refuse_create_topics(request: CreateTopicsRequest, error: ApiError) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.message or None)
            for topic in request.topics
        ]
    )


def refuse_delete_topics(request: DeleteTopicsRequest, error: ApiError) -> DeleteTopicsResponse:
    message = error.message or None
    named = [
        DeletableTopicResult(name=name, error_code=error.code, error_message=message) for name in request.topic_names
    ]
    given = [
        DeletableTopicResult(name=state.name, topic_id=state.topic_id, error_code=error.code, error_message=message)
        for state in request.topics
    ]
    return DeleteTopicsResponse(responses=named + given)


def refuse_create_partitions(request: CreatePartitionsRequest, error: ApiError) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message or None)
            for topic in request.topics
        ]
    )


def refuse_incremental_alter_configs(
    request: incremental.IncrementalAlterConfigsRequest, error: ApiError
) -> incremental.IncrementalAlterConfigsResponse:
    return incremental.IncrementalAlterConfigsResponse(
        responses=[
            incremental.AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=error.message or None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def refuse_alter_configs(request: legacy.AlterConfigsRequest, error: ApiError) -> legacy.AlterConfigsResponse:
    return legacy.AlterConfigsResponse(
        responses=[
            legacy.AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=error.message or None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )
