"""DescribeLogDirs (35), versions 1 to 5.

2 flexible · 3 an error for the whole response · 4 size of the volumes (KIP-827) · 5 cordoned directories (KIP-1066).
"""

from __future__ import annotations

import os
from collections import defaultdict

from broker.api import RequestContext, handler
from broker.disk_space import volume_space
from broker.partition import Partition
from config.broker import BrokerConfig
from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

EVERY_DIRECTORY = "*"


@handler(DescribeLogDirsRequest)
def describe_log_dirs(ctx: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    by_directory: dict[str, list[Partition]] = defaultdict(list)
    for partition in _wanted(ctx, request.topics):
        by_directory[os.path.dirname(os.path.abspath(partition.log.directory))].append(partition)
    results = []
    for directory in ctx.broker.logs.directories:
        path = os.path.abspath(directory.path)
        if directory.online:
            results.append(_result(path, by_directory.get(path, []), ctx.broker.config))
        else:
            results.append(DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path))
    return DescribeLogDirsResponse(results=results)


def _wanted(ctx: RequestContext, topics: list[DescribableLogDirTopic] | None) -> list[Partition]:
    """All partitions for null. What is asked for and not here is left out: it has no directory to report."""
    if topics is None:
        return list(ctx.broker.replicas)
    names = dict.fromkeys((topic.topic, index) for topic in topics for index in topic.partitions)
    found = (ctx.broker.replicas.partition_or_none(topic, index) for topic, index in names)
    return [partition for partition in found if partition is not None]


def _result(path: str, partitions: list[Partition], config: BrokerConfig) -> DescribeLogDirsResult:
    topics: dict[str, DescribeLogDirsTopic] = {}
    for partition in sorted(partitions, key=lambda p: (p.topic, p.index)):
        if partition.topic not in topics:
            topics[partition.topic] = DescribeLogDirsTopic(name=partition.topic)
        log = partition.log
        topics[partition.topic].partitions.append(
            DescribeLogDirsPartition(
                partition_index=partition.index,
                partition_size=log.size_bytes,
                offset_lag=max(0, log.high_watermark - log.log_end_offset),
            )
        )
    space = volume_space(path)
    cordoned = config.cordoned_log_dirs
    return DescribeLogDirsResult(
        log_dir=path,
        topics=list(topics.values()),
        total_bytes=space.total_bytes,
        usable_bytes=space.usable_bytes,
        is_cordoned=EVERY_DIRECTORY in cordoned or path in map(os.path.abspath, cordoned),
    )
