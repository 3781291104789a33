"""Topic subscriptions by regular expression: when they are resolved, and what follows from the result."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum, auto
from typing import Final, NamedTuple

from broker.coordinator.group.base import ShardState
from broker.coordinator.group.consumer.group import ConsumerGroup, count
from broker.coordinator.group.consumer.group_records import Records, epoch_record, regex_record, regex_tombstone
from broker.coordinator.group.consumer.member import ConsumerMember, ResolvedRegex
from broker.coordinator.group.consumer.metadata_hash import MetadataHashes
from broker.coordinator.group.consumer.regex import RegexError, TopicRegex
from controller.image import ImageDelta
from protocol.errors import ApiError, ErrorCode

_MIN_INTERVAL_MS: Final = 10_000
"""Between two resolutions of a group; a constant in Kafka. Each looks at the names of all topics."""


class RegexStatus(Enum):
    UNCHANGED = auto()
    UPDATED = auto()
    """To one that has yet to be resolved: the group's topics stay as they are until then."""
    UPDATED_AND_RESOLVED = auto()


class RegexUpdate(NamedTuple):
    status: RegexStatus
    to_resolve: tuple[str, ...] = ()
    """All expressions of the group, if they are to be resolved (again) once the request's records are applied."""


class Regexes:
    __slots__ = ("_hashes", "_newest_topics_offset", "_shard")

    def __init__(self, shard: ShardState, hashes: MetadataHashes) -> None:
        self._shard = shard
        self._hashes = hashes
        self._newest_topics_offset = shard.image.offset
        """Offset of the last image with new topics. What was resolved before it is out of date."""

    def on_image(self, delta: ImageDelta) -> None:
        if delta.created_topics:
            self._newest_topics_offset = self._shard.image.offset

    def on_loaded(self) -> None:
        self._newest_topics_offset = self._shard.image.offset

    def update(
        self, now_ms: int, group: ConsumerGroup, old: ConsumerMember, new: ConsumerMember, records: Records
    ) -> RegexUpdate:
        """A member changed from old to new; INVALID_REGULAR_EXPRESSION for one that nobody could subscribe to."""
        status = RegexStatus.UNCHANGED
        is_due = False
        if old.subscribed_topic_regex != new.subscribed_topic_regex:
            status = RegexStatus.UPDATED
            if old.regex is not None and group.regexes[old.regex] == 1:
                records.append(regex_tombstone(group.group_id, old.regex))
            if new.regex is not None:
                if not group.regexes[new.regex]:
                    _check(new.regex)
                    is_due = True
                elif new.regex in group.resolved_regexes:
                    status = RegexStatus.UPDATED_AND_RESOLVED
            elif old.regex is not None:
                status = RegexStatus.UPDATED_AND_RESOLVED
        if not is_due and not group.regexes:
            return RegexUpdate(status)
        last = next(iter(group.resolved_regexes.values()), None)
        if last is not None and now_ms <= last.timestamp_ms + _MIN_INTERVAL_MS:
            return RegexUpdate(status)
        regexes = group.regexes_with(old, new)
        is_due = is_due or len(regexes) != len(group.resolved_regexes)
        is_due = is_due or (0 if last is None else last.version) < self._newest_topics_offset
        interval_ms = self._shard.config.consumer_regex_refresh_interval_ms
        is_due = is_due or last is None or now_ms > last.timestamp_ms + interval_ms
        return RegexUpdate(status, tuple(regexes) if is_due else ())

    def resolve(self, now_ms: int, group: ConsumerGroup, regexes: Iterable[str]) -> Records:
        """Looks for the topics; if they differ from those before, or what is known of them does, a new group epoch."""
        image = self._shard.image
        records: Records = []
        subscriptions = dict(group.subscriptions)
        has_changed = False
        for regex in regexes:
            if not group.regexes[regex]:
                continue
            resolved = ResolvedRegex(_topics_of(regex, image.topics_by_name), image.offset, now_ms)
            before = group.resolved_regexes.get(regex)
            topics_before = before.topics if before is not None else frozenset()
            if resolved.topics != topics_before:
                has_changed = True
                count(subscriptions, topics_before, by_regex=-1)
                count(subscriptions, resolved.topics, by_regex=1)
            elif before is None and self._frees_partitions(group, regex):
                has_changed = True
            records.append(regex_record(group.group_id, regex, resolved))
        metadata_hash = self._hashes.group_hash(subscriptions, image)
        if has_changed or metadata_hash != group.metadata_hash:
            records.append(epoch_record(group.group_id, group.group_epoch + 1, metadata_hash))
            group.on_refreshed()
        return records

    def _frees_partitions(self, group: ConsumerGroup, regex: str) -> bool:
        """Whether a member that changed to this expression, which matches nothing, is still to have something by the
        one before. Apache Kafka leaves those partitions without an owner until the group changes for another reason.
        """
        names = {topic_id: topic.name for topic_id, topic in self._shard.image.topics_by_id.items()}
        return any(
            names.get(topic_id) not in member.subscribed_topic_names
            for member_id, member in group.members.items()
            if member.regex == regex
            for topic_id in group.targets.get(member_id, ())
        )

    def drop_unused(self, group: ConsumerGroup, leaving: Collection[ConsumerMember], records: Records) -> list[str]:
        """Tombstones for the expressions that only leaving members have; which they are."""
        used: dict[str, int] = {}
        for member in leaving:
            if member.regex is not None:
                used[member.regex] = used.get(member.regex, 0) + 1
        unused = [regex for regex, members in used.items() if group.regexes[regex] == members]
        records.extend(regex_tombstone(group.group_id, regex) for regex in unused)
        return unused


def _check(regex: str) -> None:
    try:
        TopicRegex(regex)
    except RegexError as error:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}.",
        ) from None


def _topics_of(regex: str, names: Iterable[str]) -> frozenset[str]:
    """None for an expression that we do not take: the log may come from another broker."""
    try:
        return TopicRegex(regex).matching(names)
    except RegexError:
        return frozenset()
