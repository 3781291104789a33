"""AlterReplicaLogDirs (34), versions 1 and 2: move this broker's replicas between its log directories (KIP-113).

2 flexible.
"""

from __future__ import annotations

import logging

from broker.api import RequestContext, handler
from protocol.errors import ApiError, ErrorCode
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from storage.errors import StorageError

log = logging.getLogger(__name__)


@handler(AlterReplicaLogDirsRequest)
def alter_replica_log_dirs(ctx: RequestContext, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    # Of a partition that is named more than once the last directory counts, as in Kafka.
    wanted = {
        (topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for (topic, index), path in wanted.items():
        result = results.setdefault(topic, AlterReplicaLogDirTopicResult(topic_name=topic))
        result.partitions.append(
            AlterReplicaLogDirPartitionResult(partition_index=index, error_code=_alter(ctx, topic, index, path))
        )
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _alter(ctx: RequestContext, topic: str, index: int, path: str) -> ErrorCode:
    try:
        ctx.broker.replicas.alter_log_dir(topic, index, path)
    except ApiError as error:
        log.info("%s-%d is not moved to %s: %s", topic, index, path, error)
        return error.code
    except StorageError as error:
        log.warning("%s-%d cannot be moved to %s: %s", topic, index, path, error)
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NONE
