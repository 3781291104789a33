"""The fetchers of a broker: which of them pulls which partition, and what they share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.coordinator.partitioning import java_hash, java_index
from broker.network.client import CallFailed, NodeClients
from broker.replication.fetch_session import SessionRequest
from broker.replication.fetcher import Key, LeaderFetcher
from broker.replication.follower import FetchPosition, FollowerState
from broker.replication.throttle import ReplicationQuota
from config.broker import BrokerConfig
from controller.image import MetadataImage
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from protocol.schema import Message
from protocol.uuids import Uuid

if TYPE_CHECKING:
    from broker.partition import Partition

LANE = "replication"


def fetcher_id_of(topic: str, index: int, fetchers: int) -> int:
    """Kafka's choice: the partitions of a topic go round."""
    return java_index(31 * java_hash(topic) + index, fetchers)


class ReplicaFetchers:
    """All fetchers of this broker: up to `num.replica.fetchers` per leader that any of its partitions follows."""

    def __init__(
        self,
        config: BrokerConfig,
        node_id: int,
        clients: NodeClients,
        broker_epoch: Callable[[], int],
        quota: ReplicationQuota,
    ) -> None:
        self.node_id = node_id
        self.quota = quota
        self._config = config
        self._clients = clients
        self._broker_epoch = broker_epoch
        self._addresses: dict[int, tuple[str, int]] = {}
        self._fetchers: dict[tuple[int, int], LeaderFetcher] = {}
        self._states: dict[Key, FollowerState] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._stopped = False

    def on_brokers(self, image: MetadataImage) -> None:
        """Addresses of the other brokers, on the listener that brokers use among themselves."""
        name = self._config.inter_broker_listener_name
        self._addresses = {
            broker.id: (broker.endpoints[name].host, broker.endpoints[name].port)
            for broker in image.brokers.values()
            if name in broker.endpoints
        }
        self.wake()

    def on_config(self, config: BrokerConfig) -> None:
        """With another number of fetchers, partitions go on where they were, with the fetcher that is theirs now."""
        old, self._config = self._config, config
        if config.num_replica_fetchers != old.num_replica_fetchers:
            self._spread()
        self.wake()

    def wake(self) -> None:
        """What a fetcher waits for may have come: an address, a partition, a quota."""
        for fetcher in self._fetchers.values():
            fetcher.wake()

    def _spread(self) -> None:
        for (leader, fetcher_id), fetcher in list(self._fetchers.items()):
            for followed in list(fetcher.followed.values()):
                wanted_id = self._fetcher_id(followed.partition)
                if wanted_id != fetcher_id:
                    fetcher.remove(followed.key)
                    self._fetcher(leader, wanted_id).take(followed)
            self._maybe_end(fetcher)

    def _fetcher_id(self, partition: Partition) -> int:
        return fetcher_id_of(partition.topic, partition.index, self._config.num_replica_fetchers)

    def _fetcher(self, leader: int, fetcher_id: int) -> LeaderFetcher:
        fetcher = self._fetchers.get((leader, fetcher_id))
        if fetcher is None:
            fetcher = self._fetchers[leader, fetcher_id] = LeaderFetcher(leader, fetcher_id, self)
        return fetcher

    def _maybe_end(self, fetcher: LeaderFetcher) -> None:
        if len(fetcher):
            return
        del self._fetchers[fetcher.leader, fetcher.fetcher_id]
        task = asyncio.get_running_loop().create_task(fetcher.stop())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def on_partition(self, partition: Partition) -> None:
        """Follows the partition's leader from now on, if that is another broker and lives."""
        image = partition.image
        key = (partition.topic_id, partition.index)
        leader = -1 if image is None or self._stopped else image.leader
        state = self._states.get(key)
        wanted = None if image is None else (leader, image.leader_epoch)
        if state is not None and (state.leader, state.leader_epoch) == wanted:
            return
        self.remove(partition)
        if image is None or leader < 0 or leader == self.node_id:
            return
        state = self._states[key] = FollowerState(leader, image.leader_epoch, self.backoff_ms)
        self._fetcher(leader, self._fetcher_id(partition)).add(partition, state)

    def remove(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.index)
        state = self._states.pop(key, None)
        if state is None:
            return
        fetcher = self._fetchers[state.leader, self._fetcher_id(partition)]
        fetcher.remove(key)
        self._maybe_end(fetcher)

    @property
    def backoff_ms(self) -> int:
        return self._config.replica_fetch_backoff_ms

    async def call(self, leader: int, fetcher_id: int, request: Message) -> Message:
        """Each fetcher has a connection of its own: answers come in order, and one that waits would hold up others."""
        address = self._addresses.get(leader)
        if address is None:
            raise CallFailed(f"broker {leader} has no listener {self._config.inter_broker_listener_name}")
        config = self._config
        return await self._clients.call(
            *address,
            request,
            config.replica_socket_timeout_ms,
            lane=f"{LANE}-{fetcher_id}",
            receive_buffer_bytes=self._receive_buffer_bytes,
        )

    def hang_up(self, leader: int, fetcher_id: int) -> None:
        """Whatever the fetcher waits for fails; its next request goes over a new connection."""
        address = self._addresses.get(leader)
        if address is not None:
            self._clients.hang_up(*address, lane=f"{LANE}-{fetcher_id}")

    @property
    def _receive_buffer_bytes(self) -> int:
        """As with clients' connections, the kernel sizes the buffer unless someone asks for a size."""
        name = "replica.socket.receive.buffer.bytes"
        return self._config.replica_socket_receive_buffer_bytes if name in self._config.raw else -1

    def fetch_request(self, asked: SessionRequest[Key, FetchPosition], max_wait_ms: int | None) -> FetchRequest:
        """Partitions in the order they are asked in, which is that of the leader's answer: a topic may come twice."""
        config = self._config
        topics: list[FetchTopic] = []
        for (topic_id, index), position in asked.changed.items():
            if not topics or topics[-1].topic_id != topic_id:
                topics.append(FetchTopic(topic_id=topic_id))
            topics[-1].partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=position.leader_epoch,
                    fetch_offset=position.offset,
                    last_fetched_epoch=position.last_fetched_epoch,
                    log_start_offset=position.log_start_offset,
                    partition_max_bytes=config.replica_fetch_max_bytes,
                )
            )
        forgotten: dict[Uuid, ForgottenTopic] = {}
        for topic_id, index in asked.forgotten:
            forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(index)
        wait_ms = config.replica_fetch_wait_max_ms
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self.node_id, replica_epoch=self._broker_epoch()),
            max_wait_ms=wait_ms if max_wait_ms is None else min(wait_ms, max_wait_ms),
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=asked.session_id,
            session_epoch=asked.epoch,
            topics=topics,
            forgotten_topics_data=list(forgotten.values()),
        )

    async def stop(self) -> None:
        """No log is written by a fetcher after this."""
        self._stopped = True
        fetchers, self._fetchers = self._fetchers, {}
        self._states.clear()
        await asyncio.gather(*(fetcher.stop() for fetcher in fetchers.values()), *self._ending)
