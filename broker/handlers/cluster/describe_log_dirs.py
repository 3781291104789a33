"""DescribeLogDirs (35), versions 1 to 5.

2 flexible · 3 an error for the whole response · 4 size of the volumes (KIP-827) · 5 cordoned directories (KIP-1066).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from broker.api import RequestContext, handler
from broker.disk_space import volume_space
from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from storage.log import Log
from storage.log_manager import LogManager

UNKNOWN_LAG = -1


@handler(DescribeLogDirsRequest)
def describe_log_dirs(ctx: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    by_directory: dict[str, list[Log]] = defaultdict(list)
    for log in _wanted(ctx.broker.logs, request.topics):
        by_directory[log.log_dir.path].append(log)
    results = []
    for directory in ctx.broker.logs.directories:
        if directory.online:
            results.append(_result(ctx, directory.path, by_directory.get(directory.path, [])))
        else:
            results.append(DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path))
    return DescribeLogDirsResponse(results=results)


def _wanted(logs: LogManager, topics: list[DescribableLogDirTopic] | None) -> Iterable[Log]:
    """All logs for null. What is asked for and not here is left out: it has no directory to report."""
    if topics is None:
        return logs
    names = dict.fromkeys((topic.topic, index) for topic in topics for index in topic.partitions)
    found = (log for name in names for log in (logs.get(*name), logs.future(*name)))
    return [log for log in found if log is not None]


def _result(ctx: RequestContext, path: str, logs: list[Log]) -> DescribeLogDirsResult:
    topics: dict[str, DescribeLogDirsTopic] = {}
    for log in sorted(logs, key=lambda log: (log.topic, log.partition)):
        if log.topic not in topics:
            topics[log.topic] = DescribeLogDirsTopic(name=log.topic)
        is_future = ctx.broker.logs.future(log.topic, log.partition) is log
        topics[log.topic].partitions.append(
            DescribeLogDirsPartition(
                partition_index=log.partition,
                partition_size=log.size_bytes,
                offset_lag=_offset_lag(ctx, log, is_future),
                is_future_key=is_future,
            )
        )
    space = volume_space(path)
    return DescribeLogDirsResult(
        log_dir=path,
        topics=list(topics.values()),
        total_bytes=space.total_bytes,
        usable_bytes=space.usable_bytes,
        is_cordoned=ctx.broker.config.is_cordoned(path),
    )


def _offset_lag(ctx: RequestContext, log: Log, is_future: bool) -> int:
    """A copy on its way lags behind the log in use, that one behind what is committed."""
    partition = ctx.broker.replicas.partition_or_none(log.topic, log.partition)
    if partition is None:
        return UNKNOWN_LAG
    current = partition.log
    return (
        current.log_end_offset if is_future else max(current.high_watermark, log.log_end_offset)
    ) - log.log_end_offset
