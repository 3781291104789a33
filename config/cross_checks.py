"""Numbers and directories that come from several settings, and rules between settings."""

from __future__ import annotations

from typing import Any

from config.broker_settings import SYNONYMS
from config.draft import Draft

_UNIT_MS = {"hours": 3_600_000, "minutes": 60_000, "ms": 1}
_MEGABYTE = 1024 * 1024


def resolve_numbers(draft: Draft) -> dict[str, Any]:
    """The attributes of BrokerConfig that several settings decide together."""
    log_dirs = draft.items("log.dirs") or draft.items("log.dir")
    retention_ms = milliseconds(draft, "log.retention.ms")
    resolved = {
        "log_dirs": log_dirs,
        "metadata_log_dir": draft.text("metadata.log.dir") or log_dirs[0],
        # Any negative time means "for ever", which is spelled -1 from here on.
        "log_retention_ms": max(retention_ms, -1),
        "log_roll_ms": milliseconds(draft, "log.roll.ms"),
        "log_roll_jitter_ms": milliseconds(draft, "log.roll.jitter.ms"),
        "log_flush_interval_ms": milliseconds(draft, "log.flush.interval.ms"),
        "num_replica_alter_log_dirs_threads": (draft.values["num.replica.alter.log.dirs.threads"] or len(log_dirs)),
        "max_connections_per_ip_overrides": _connection_overrides(draft),
        "early_start_listeners": draft.items("early.start.listeners"),
    }
    _check_times(draft, resolved)
    _check_sizes(draft, resolved)
    _check_groups(draft)
    return resolved


def deciding_setting(draft: Draft, name: str) -> str:
    """Which of the settings that differ only in their unit supplies the value of ``name``."""
    group = SYNONYMS[name]
    return next((item for item in group if draft.values[item] is not None), group[-1])


def milliseconds(draft: Draft, name: str) -> int:
    """A time that can be written in several units; the most precise one that is set counts."""
    setting = deciding_setting(draft, name)
    return draft.number(setting) * _UNIT_MS[setting.rpartition(".")[2]]


def _check_times(draft: Draft, resolved: dict[str, Any]) -> None:
    for name, attribute, least, hint in (
        ("log.retention.ms", "log_retention_ms", 1, "Use -1 to keep records for ever."),
        ("log.roll.ms", "log_roll_ms", 1, "Use a time of at least 1 ms."),
        ("log.roll.jitter.ms", "log_roll_jitter_ms", 0, "Use 0 to roll without jitter."),
    ):
        value = resolved[attribute]
        if value < least and not (name == "log.retention.ms" and value == -1):
            setting = deciding_setting(draft, name)
            raise draft.error(setting, f"{setting} must be at least {least}", hint)
    shortest, longest = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
    _ordered(draft, shortest, longest)
    _ordered(draft, "replica.fetch.wait.max.ms", "replica.socket.timeout.ms")
    _ordered(draft, "replica.fetch.wait.max.ms", "replica.lag.time.max.ms")


def _check_sizes(draft: Draft, resolved: dict[str, Any]) -> None:
    queued, request = "queued.max.request.bytes", "socket.request.max.bytes"
    if 0 < draft.number(queued) < draft.number(request):
        raise draft.error(
            queued,
            f"{queued} must be larger or equal to {request} ({draft.number(request)})",
            "Raise it, or use -1 for no limit.",
        )
    buffer, threads = "log.cleaner.dedupe.buffer.size", draft.number("log.cleaner.threads")
    if threads and draft.number(buffer) // threads <= _MEGABYTE:
        raise draft.error(
            buffer,
            f"{buffer} must give each of the {threads} cleaner threads more than {_MEGABYTE} bytes",
            f"Use at least {threads * (_MEGABYTE + 1)}.",
        )
    if draft.number("max.connections.per.ip") == 0 and not resolved["max_connections_per_ip_overrides"]:
        raise draft.error(
            "max.connections.per.ip",
            "max.connections.per.ip is 0 and max.connections.per.ip.overrides is empty: nobody could connect",
            "Name the permitted hosts in max.connections.per.ip.overrides, or raise the limit.",
        )
    for name in ("offsets.topic.compression.codec", "share.coordinator.state.topic.compression.codec"):
        if not 0 <= draft.number(name) <= 4:
            raise draft.error(
                name,
                f"Unknown compression type id: {draft.number(name)}",
                "0 is none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
            )
    cordoned = draft.items("cordoned.log.dirs")
    strangers = [entry for entry in cordoned if entry not in resolved["log_dirs"]]
    if strangers and cordoned != ("*",):
        raise draft.error(
            "cordoned.log.dirs",
            f"cordoned.log.dirs has {strangers[0]}, which is not a log directory",
            "Name directories of log.dirs, or * for all of them.",
        )


def _check_groups(draft: Draft) -> None:
    if "classic" not in draft.items("group.coordinator.rebalance.protocols"):
        raise draft.error(
            "group.coordinator.rebalance.protocols",
            "Disabling the 'classic' protocol is not supported",
            "Add classic to the list.",
        )
    for kind in ("consumer", "share", "streams"):
        for limit in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"):
            _between(draft, f"group.{kind}.", limit)
        _ordered(draft, f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms")
    for limit in ("delivery.count.limit", "record.lock.duration.ms", "partition.max.record.locks"):
        _between(draft, "group.share.", limit)
    _ordered(draft, "group.streams.num.standby.replicas", "group.streams.max.standby.replicas")


def _between(draft: Draft, prefix: str, limit: str) -> None:
    _ordered(draft, f"{prefix}min.{limit}", f"{prefix}max.{limit}")
    _ordered(draft, f"{prefix}min.{limit}", prefix + limit)
    _ordered(draft, prefix + limit, f"{prefix}max.{limit}")


def _ordered(draft: Draft, lower: str, upper: str) -> None:
    """Blames the one that was written; if both were, the first."""
    low, high = draft.number(lower), draft.number(upper)
    if low > high:
        blamed = lower if lower in draft.raw or upper not in draft.raw else upper
        raise draft.error(
            blamed, f"{lower} ({low}) must not be greater than {upper} ({high})", "Change one of the two."
        )


def _connection_overrides(draft: Draft) -> dict[str, int]:
    setting = "max.connections.per.ip.overrides"
    found = {}
    for entry in filter(None, (item.strip() for item in (draft.text(setting) or "").split(","))):
        host, colon, limit = entry.rpartition(":")
        if not colon or not host.strip() or not limit.strip().isdecimal():
            raise draft.error(setting, f"Cannot read {entry!r} in {setting}", "Write host:limit,host:limit.")
        found[host.strip()] = int(limit)
    return found
