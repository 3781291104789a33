"""Replication of this broker's partitions, put together: who follows whom, who may be in sync, who is throttled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from broker.controller_channel import ControllerChannel
from broker.network.client import NodeClients
from broker.replication.cluster import ClusterView
from broker.replication.fetchers import ReplicaFetchers
from broker.replication.isr_updates import IsrUpdates
from broker.replication.throttle import ReplicationQuota, throttled_partitions
from config.broker import BrokerConfig
from config.topic import LogConfig
from controller.image import MetadataImage
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

if TYPE_CHECKING:
    from broker.partition import Partition
    from controller.controller import Controller


class ReplicationService:
    """Owned by the Broker; the replica manager tells it of partitions and brokers."""

    def __init__(
        self,
        config: BrokerConfig,
        clients: NodeClients,
        controller: Controller,
        channel: ControllerChannel,
        broker_epoch: Callable[[], int],
    ) -> None:
        async def ask(request: AlterPartitionRequest, timeout_ms: float) -> AlterPartitionResponse:
            answer = await channel.ask(
                request, lambda: controller.on_alter_partition(request), timeout_ms=timeout_ms, lane="alter-partition"
            )
            assert isinstance(answer, AlterPartitionResponse)
            return answer

        self._isr_updates = IsrUpdates(config.node_id, broker_epoch, ask)
        self.cluster = ClusterView(config.replica_lag_time_max_ms, self._isr_updates, broker_epoch)
        window = config.replication_quota_window_num, config.replication_quota_window_size_seconds
        self._leader_quota = ReplicationQuota(*window, config.leader_replication_throttled_rate)
        self._follower_quota = ReplicationQuota(*window, config.follower_replication_throttled_rate)
        self._node_id = config.node_id
        self.fetchers = ReplicaFetchers(config, config.node_id, clients, broker_epoch, self._follower_quota)
        self._check_interval_s = config.replica_lag_time_max_ms / 2000
        self._timer: asyncio.TimerHandle | None = None
        self._partitions: Iterable[Partition] = ()

    def start(self, partitions: Iterable[Partition]) -> None:
        """Looks for lagging followers twice per replica.lag.time.max.ms, as Kafka does."""
        self._partitions = partitions
        self._arm()

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._check_interval_s, self._check_lag)

    def _check_lag(self) -> None:
        for partition in list(self._partitions):
            partition.maybe_shrink_isr()
            partition.on_cluster_change()
        self._arm()

    def on_brokers(self, image: MetadataImage) -> None:
        self.cluster.on_brokers(image)
        self.fetchers.on_brokers(image)

    def on_config(self, config: BrokerConfig) -> None:
        """Rates count at once: those who wait for a quota look again, here and when their topics are told."""
        self._leader_quota.update(config.leader_replication_throttled_rate)
        self._follower_quota.update(config.follower_replication_throttled_rate)
        self.fetchers.on_config(config)

    def on_topic_config(self, config: LogConfig, partitions: Iterable[Partition]) -> None:
        """Which replicas of a topic are throttled from now on."""
        sent = throttled_partitions(config.leader_replication_throttled_replicas, self._node_id)
        taken = throttled_partitions(config.follower_replication_throttled_replicas, self._node_id)
        for partition in partitions:
            partition.on_throttle(
                self._leader_quota if partition.index in sent else None,
                self._follower_quota if partition.index in taken else None,
            )
        self.fetchers.wake()

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self.fetchers.stop()
        await self._isr_updates.stop()
