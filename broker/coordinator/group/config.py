"""The settings of group coordination, resolved once from the broker's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from config.broker import BrokerConfig


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Defaults are Apache Kafka 4.3.1's; tests override what they are about."""

    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    offsets_retention_check_interval_ms: int = 600_000

    classic_min_session_timeout_ms: int = 6_000
    classic_max_session_timeout_ms: int = 1_800_000
    classic_initial_rebalance_delay_ms: int = 3_000
    classic_max_size: int = 2**31 - 1
    classic_new_member_join_timeout_ms: int = 5 * 60 * 1000
    """How long a member that only just joined may stay silent before it is dropped; a constant in Kafka."""

    consumer_session_timeout_ms: int = 45_000
    consumer_min_session_timeout_ms: int = 45_000
    consumer_max_session_timeout_ms: int = 60_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_min_heartbeat_interval_ms: int = 5_000
    consumer_max_heartbeat_interval_ms: int = 15_000
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"
    consumer_assignment_interval_ms: int = 1_000
    consumer_min_assignment_interval_ms: int = 0
    consumer_max_assignment_interval_ms: int = 15_000
    consumer_regex_refresh_interval_ms: int = 600_000

    @classmethod
    def from_broker(cls, config: BrokerConfig) -> GroupConfig:
        return cls(
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * 60_000,
            offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
            classic_min_session_timeout_ms=config.group_min_session_timeout_ms,
            classic_max_session_timeout_ms=config.group_max_session_timeout_ms,
            classic_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            classic_max_size=config.group_max_size,
            consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
            consumer_min_session_timeout_ms=config.group_consumer_min_session_timeout_ms,
            consumer_max_session_timeout_ms=config.group_consumer_max_session_timeout_ms,
            consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
            consumer_min_heartbeat_interval_ms=config.group_consumer_min_heartbeat_interval_ms,
            consumer_max_heartbeat_interval_ms=config.group_consumer_max_heartbeat_interval_ms,
            consumer_max_size=config.group_consumer_max_size,
            consumer_assignors=config.group_consumer_assignors,
            consumer_migration_policy=config.group_consumer_migration_policy,
            consumer_assignment_interval_ms=config.group_consumer_assignment_interval_ms,
            consumer_min_assignment_interval_ms=config.group_consumer_min_assignment_interval_ms,
            consumer_max_assignment_interval_ms=config.group_consumer_max_assignment_interval_ms,
            consumer_regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
        )


def clamped(overrides: Mapping[str, str], name: str, default: int, lowest: int, highest: int) -> int:
    """A group's own setting (consumer.session.timeout.ms ...), held within the limits the broker sets."""
    text = overrides.get(name)
    return default if text is None else max(lowest, min(highest, int(text)))
