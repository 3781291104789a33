"""The leader and the offline replicas of a partition, as clients of one listener may see them."""

from __future__ import annotations

from controller.image import NO_LEADER, BrokerImage, MetadataImage, PartitionImage
from protocol.uuids import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, Uuid


class PartitionView:
    """Built once per request, so that the brokers are looked at once and not once per partition."""

    __slots__ = ("_brokers", "_reachable", "_unfenced")

    def __init__(self, image: MetadataImage, listener: str) -> None:
        self._brokers = image.brokers
        self._reachable = {b.id for b in image.brokers.values() if listener in b.endpoints}
        self._unfenced = {b.id for b in image.brokers.values() if not b.fenced} & self._reachable

    def is_registered(self, broker_id: int) -> bool:
        return broker_id in self._brokers

    def leader_of(self, partition: PartitionImage) -> int:
        """The leader if clients of this listener can reach it, -1 otherwise."""
        return partition.leader if partition.leader in self._reachable else NO_LEADER

    def reachable(self, replicas: tuple[int, ...]) -> list[int]:
        return [replica for replica in replicas if replica in self._reachable]

    def offline_replicas(self, partition: PartitionImage) -> list[int]:
        """Replicas on a fenced or unreachable broker, or in a log directory that has failed (KIP-858)."""
        return [replica for replica in partition.replicas if not self._is_online(replica, partition)]

    def _is_online(self, replica: int, partition: PartitionImage) -> bool:
        return replica in self._unfenced and _has_online_directory(
            self._brokers[replica], partition.directory_of(replica)
        )


def _has_online_directory(broker: BrokerImage, directory: Uuid) -> bool:
    """A replica without a directory yet counts as online; a broker that names none has but one."""
    if directory in broker.directories or directory in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING):
        return True
    return directory != DIRECTORY_LOST and not broker.directories
