"""OffsetCommit, OffsetFetch and OffsetDelete, and what else changes offsets: deleted topics and the log."""

from __future__ import annotations

from collections.abc import Iterable

from broker.coordinator.effects import Effects
from broker.coordinator.group.base import Client, Group, ShardState
from broker.coordinator.group.classic.group import ClassicGroup
from broker.coordinator.group.classic.manager import ClassicGroups
from broker.coordinator.group.offsets import (
    INVALID_OFFSET,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    CommittedOffset,
    offset_record,
    offset_tombstone,
)
from controller.image import TopicImage
from protocol.coordinator.legacy_offset_commit import LegacyOffsetCommitKey, LegacyOffsetCommitValue
from protocol.coordinator.offset_commit import OffsetCommitKey, OffsetCommitValue
from protocol.errors import ApiError, ErrorCode
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from protocol.schema import Message
from protocol.uuids import Uuid

GROUP_ID_NOT_FOUND_SINCE = 9
"""Older OffsetCommits of a member of an unknown group hear ILLEGAL_GENERATION."""


class OffsetRequests:
    __slots__ = ("_classic", "_offsets", "_shard")

    def __init__(self, shard: ShardState, classic: ClassicGroups) -> None:
        self._shard = shard
        self._offsets = shard.offsets
        self._classic = classic

    # --- commit -----------------------------------------------------------------------------------------------------

    def commit(self, now_ms: int, token: object, request: OffsetCommitRequest, client: Client) -> Effects:
        """All of the request fails with who sent it (member, generation), or each partition on its own.

        A commit without a generation to an unknown group makes a simple group: offsets without members.
        """
        effects = Effects()
        try:
            group = self._group_to_commit(request, client)
            check = None
            if group is not None:
                check = group.check_offset_commit(
                    request.member_id,
                    request.group_instance_id,
                    request.generation_id_or_member_epoch,
                    is_transactional=False,
                    api_version=client.api_version,
                )
            if check is not None:
                for topic in request.topics:
                    for partition in topic.partitions:
                        check(topic.name, topic.topic_id, partition.partition_index)
        except ApiError as error:
            effects.add_reply(token, _all_failed(request, error.code))
            return effects
        if isinstance(group, ClassicGroup):
            self._classic.on_offset_commit(now_ms, group, request.member_id)
        response = OffsetCommitResponse()
        for topic in request.topics:
            answered = [
                OffsetCommitResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=self._commit_one(now_ms, request, topic, partition, effects),
                )
                for partition in topic.partitions
            ]
            response.topics.append(
                OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answered)
            )
        if group is None and effects.records:
            self._classic.create_simple(request.group_id, now_ms)
        effects.add_reply(token, response)
        return effects

    def _group_to_commit(self, request: OffsetCommitRequest, client: Client) -> Group | None:
        group = self._shard.groups.get(request.group_id)
        if group is None and request.generation_id_or_member_epoch >= 0:
            if client.api_version >= GROUP_ID_NOT_FOUND_SINCE:
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        return group

    def _commit_one(
        self,
        now_ms: int,
        request: OffsetCommitRequest,
        topic: OffsetCommitRequestTopic,
        partition: OffsetCommitRequestPartition,
        effects: Effects,
    ) -> ErrorCode:
        metadata = partition.committed_metadata or ""
        if _java_length(metadata) > self._shard.config.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        retention_ms = request.retention_time_ms
        committed = CommittedOffset(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=metadata,
            commit_timestamp=now_ms,
            expire_timestamp=NO_TIMESTAMP if retention_ms == -1 else now_ms + retention_ms,
            topic_id=topic.topic_id,
        )
        self._offsets.put(request.group_id, topic.name, partition.partition_index, committed)
        effects.records.append(offset_record(request.group_id, topic.name, partition.partition_index, committed))
        return ErrorCode.NONE

    # --- fetch ------------------------------------------------------------------------------------------------------

    def fetch(self, now_ms: int, request: OffsetFetchRequestGroup, *, require_stable: bool) -> OffsetFetchResponseGroup:
        """An unknown group is one without offsets, not an error.

        Offsets of open transactions are never in the store, so whatever is found is stable.
        """
        response = OffsetFetchResponseGroup(group_id=request.group_id)
        group = self._shard.groups.get(request.group_id)
        try:
            if group is not None:
                group.check_offset_fetch(request.member_id, request.member_epoch)
        except ApiError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                response.error_code = error.code
                return response
            group = None
        if request.topics is None:
            if group is not None:
                response.topics = self._fetch_all(request.group_id)
            return response
        for topic in request.topics:
            partitions = []
            for index in topic.partition_indexes:
                committed = None if group is None else self._offsets.get(request.group_id, topic.name, index)
                if committed is not None and not committed.belongs_to(topic.topic_id):
                    committed = None
                partitions.append(_fetched(index, committed))
            response.topics.append(
                OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
            )
        return response

    def _fetch_all(self, group_id: str) -> list[OffsetFetchResponseTopics]:
        known = self._shard.image.topics_by_name
        return [
            OffsetFetchResponseTopics(
                name=name,
                topic_id=known[name].topic_id if name in known else Uuid.ZERO,
                partitions=[_fetched(index, committed) for index, committed in partitions.items()],
            )
            for name, partitions in self._offsets.topics(group_id).items()
        ]

    # --- delete -----------------------------------------------------------------------------------------------------

    def delete(self, now_ms: int, token: object, request: OffsetDeleteRequest) -> Effects:
        effects = Effects()
        response = OffsetDeleteResponse()
        try:
            if not request.group_id:
                raise ApiError(ErrorCode.INVALID_GROUP_ID)
            group = self._shard.group_or_raise(request.group_id)
            group.check_offset_delete()
        except ApiError as error:
            response.error_code = error.code
        else:
            response.topics = [self._delete_of_topic(group, topic, effects) for topic in request.topics]
        effects.add_reply(token, response)
        return effects

    def _delete_of_topic(
        self, group: Group, topic: OffsetDeleteRequestTopic, effects: Effects
    ) -> OffsetDeleteResponseTopic:
        """An offset that is not there is deleted without an error."""
        is_subscribed = group.is_subscribed_to(topic.name)
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE
        for partition in topic.partitions:
            if not is_subscribed:
                self._remove(group.group_id, topic.name, partition.partition_index, effects)
        return OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=code)
                for partition in topic.partitions
            ],
        )

    def on_topics_deleted(self, deleted: Iterable[TopicImage]) -> Effects:
        """A new topic of the same name has its own offsets: those that were committed for it stay."""
        effects = Effects()
        for topic in deleted:
            for group_id, partition, committed in self._offsets.items_of_topic(topic.name):
                if committed.belongs_to(topic.topic_id):
                    self._remove(group_id, topic.name, partition, effects)
        return effects

    def _remove(self, group_id: str, topic: str, partition: int, effects: Effects) -> None:
        if self._offsets.remove(group_id, topic, partition):
            effects.records.append(offset_tombstone(group_id, topic, partition))

    # --- the log ----------------------------------------------------------------------------------------------------

    def replay(self, key: OffsetCommitKey, value: Message | None) -> None:
        """Also for offsets of a transaction, from its commit marker on."""
        if value is None:
            self._offsets.remove(key.group, key.topic, key.partition)
            return
        assert isinstance(value, OffsetCommitValue)
        if key.group not in self._shard.groups:
            self._classic.create_simple(key.group)
        self._offsets.put(key.group, key.topic, key.partition, CommittedOffset.from_value(value))

    def replay_legacy(self, key: LegacyOffsetCommitKey, value: Message | None) -> None:
        """The first key type of Kafka 0.8, for logs that old."""
        converted = None
        if value is not None:
            assert isinstance(value, LegacyOffsetCommitValue)
            converted = OffsetCommitValue(
                offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp
            )
        self.replay(OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition), converted)


def _all_failed(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    topics = [
        OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return OffsetCommitResponse(topics=topics)


def _fetched(index: int, committed: CommittedOffset | None) -> OffsetFetchResponsePartitions:
    if committed is None:
        return OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=INVALID_OFFSET,
            committed_leader_epoch=NO_LEADER_EPOCH,
            metadata="",
        )
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _java_length(text: str) -> int:
    """`offset.metadata.max.bytes` is compared with Java's length of a string: UTF-16 code units, not bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-16-be", "surrogatepass")) // 2
