"""Clients of a fault test that see the log from elsewhere: from followers, and by its end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from support.fault_answers import FETCH, FETCH_FROM_FOLLOWER, RETRIABLE
from support.fault_clients import Client, Reader
from support.fault_nodes import rack_of

from protocol.errors import ErrorCode
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

NEAR_S = (1.0, 5.0)
"""A consumer of Kafka's stays with a replica for five minutes; this one asks the leader again much earlier."""
LATEST = -1
READ_UNCOMMITTED = 0


class FollowerReader(Reader):
    """Says that it is in the rack of a follower, and goes where the leader sends it (KIP-392)."""

    def __init__(self, name: str, partitions: Sequence[int], *rest: Any) -> None:
        super().__init__(name, partitions, *rest)
        self._near: dict[int, tuple[int, float]] = {}
        """Node and end of the stay, by partition."""
        self.from_followers = 0

    def read(self, partition: int, position: int) -> list[str]:
        leader = self.leader(partition)
        if leader is None:
            self.pause()
            return []
        node, until = self._near.get(partition, (leader, 0.0))
        if time.monotonic() >= until:
            node = leader
        others = [other for other in self.addresses if other != leader]
        data = self.fetch(node, partition, position, rack_of(self.rng.choice(others)) if node == leader else "")
        if data is None:
            self._leave(partition)
            return []
        error = self.answered("fetch", data.error_code, FETCH if node == leader else FETCH_FROM_FOLLOWER)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE and node != leader:
            self._near.pop(partition)
            return []
        if error is not ErrorCode.NONE:
            self._leave(partition)
            self.pause()
            return []
        if data.preferred_read_replica >= 0:
            self._near[partition] = (data.preferred_read_replica, time.monotonic() + self.rng.uniform(*NEAR_S))
            return []
        values = self.values_in(data, partition, position)
        if values and node != leader:
            self.note(partition, position, values, from_follower=node)
            self.positions[partition] = position + len(values)
            self.from_followers += len(values)
            return []
        return values

    def _leave(self, partition: int) -> None:
        self._near.pop(partition, None)
        self.forget_leader(partition)


class EndWatcher(Client):
    """Asks again and again for the end of each partition, as Spark does for what to read next."""

    def __init__(self, name: str, partitions: Sequence[int], *rest: Any) -> None:
        super().__init__(name, *rest)
        self.partitions = partitions

    def work(self) -> None:
        while not self.stopping.is_set():
            for partition in self.partitions:
                self._ask_end(partition)
            self.pause()

    def _ask_end(self, partition: int) -> None:
        leader = self.leader(partition)
        if leader is None:
            self.pause()
            return
        asked = self.history.count
        wanted = ListOffsetsPartition(
            partition_index=partition, current_leader_epoch=self.epoch(partition), timestamp=LATEST
        )
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=READ_UNCOMMITTED,
            topics=[ListOffsetsTopic(name=self.topic, partitions=[wanted])],
        )
        answer = self.ask(leader, request, 7)
        if answer is None:
            self.forget_leader(partition)
            return
        (found,) = answer.topics[0].partitions
        if self.answered("list offsets", found.error_code, RETRIABLE):
            self.forget_leader(partition)
            self.pause()
        else:
            self.history.add("latest", client=self.name, partition=partition, offset=found.offset, asked=asked)
