"""What a stopped node of a fault test has on its disks, and what it said, for the history."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from support.history import History
from support.quorum_cluster import NodeProcess

from broker.coordinator.records import decode_record
from protocol.coordinator.offset_commit import OffsetCommitKey, OffsetCommitValue
from protocol.records import iter_batches, iter_records
from storage.checkpoints import REPLICATION_OFFSET, OffsetCheckpointFile

TRACE_LINES = 40


def _place(node: NodeProcess, topic: str, partition: int) -> tuple[Path, int]:
    """Where the replica is, and its high watermark."""
    for directory in node.data_dirs:
        path = directory / f"{topic}-{partition}"
        if path.exists():
            checkpoint = OffsetCheckpointFile(str(directory / REPLICATION_OFFSET)).read()
            return path, checkpoint[topic, partition]
    raise AssertionError(f"node {node.node_id} has no replica of {topic}-{partition}")


def _batches(path: Path) -> Iterator[tuple[int, int, memoryview]]:
    """(base offset, next offset, bytes) of every batch."""
    for segment in sorted(path.glob("*.log")):
        data = memoryview(segment.read_bytes())
        for position, header in iter_batches(data):
            yield header.base_offset, header.next_offset, data[position : position + header.size]


def add_replica(history: History, node: NodeProcess, topic: str, partition: int, *, with_values: bool) -> None:
    """The records, and the digest of the bytes up to the high watermark."""
    path, high_watermark = _place(node, topic, partition)
    digest = hashlib.sha256()
    values: list[str] = []
    start, end = -1, 0
    for base_offset, next_offset, batch in _batches(path):
        start = base_offset if start < 0 else start
        end = next_offset
        if next_offset <= high_watermark:
            digest.update(batch)
            if with_values:
                values += [bytes(record.value or b"").decode() for record in iter_records(batch)]
    history.add(
        "replica",
        node=node.node_id,
        topic=topic,
        partition=partition,
        start=max(start, 0),
        end=end,
        high_watermark=high_watermark,
        digest=digest.hexdigest(),
        values=values if with_values else None,
    )


def add_stored_offsets(history: History, node: NodeProcess, offsets_topic: str, partitions: int, topic: str) -> None:
    """All offsets that groups have committed for the topic, as the node's replicas of the offsets' topic have them."""
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for index in range(partitions):
        path, high_watermark = _place(node, offsets_topic, index)
        for _, next_offset, batch in _batches(path):
            if next_offset > high_watermark:
                break
            for record in iter_records(batch):
                assert record.key is not None
                stored = decode_record(record.key, record.value)
                key, value = stored.key, stored.value
                if isinstance(key, OffsetCommitKey) and key.topic == topic:
                    offset = value.offset if isinstance(value, OffsetCommitValue) else -1
                    found[key.group, key.partition].append(offset)
    for (group, partition), offsets in found.items():
        history.add("stored", node=node.node_id, group=group, partition=partition, offsets=offsets)


def add_error_traces(history: History, nodes: Iterable[NodeProcess]) -> None:
    for node in nodes:
        lines = node.log_text.splitlines()
        for at, line in enumerate(lines):
            if line.startswith("Traceback"):
                history.add("trace", node=node.node_id, text="\n".join(lines[max(at - 1, 0) : at + TRACE_LINES]))
