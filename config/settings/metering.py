"""Metrics, telemetry and quotas."""

from __future__ import annotations

from config.checks import ListOf, Range
from config.definitions import Setting
from config.settings.words import (
    CLASS,
    CLUSTER_WIDE,
    INT,
    LIST,
    LONG,
    LOW,
    READ_ONLY,
    STRING,
)

# fmt: off
SETTINGS: tuple[Setting, ...] = (
    Setting("metrics.num.samples", INT, 2, LOW, READ_ONLY, Range(1),
            "Samples kept per metric."),
    Setting("metrics.sample.window.ms", LONG, 30_000, LOW, READ_ONLY, Range(1),
            "Length of one sample of a metric."),
    Setting("metric.reporters", LIST, ("org.apache.kafka.common.metrics.JmxReporter",), LOW, CLUSTER_WIDE,
            ListOf(),
            "Classes that report metrics."),
    Setting("metrics.recording.level", STRING, "INFO", LOW, READ_ONLY, None,
            "Least important level of metrics that is recorded."),
    Setting("kafka.metrics.reporters", LIST, (), LOW, READ_ONLY, ListOf(),
            "Classes that report the older kind of metrics."),
    Setting("kafka.metrics.polling.interval.secs", INT, 10, LOW, READ_ONLY, Range(1),
            "How often the older kind of metrics is reported."),
    Setting("telemetry.max.bytes", INT, 1_048_576, LOW, READ_ONLY, Range(1),
            "Largest push of metrics from a client."),
    Setting("quota.window.num", INT, 11, LOW, READ_ONLY, Range(1),
            "Samples kept to enforce client quotas."),
    Setting("alter.log.dirs.replication.quota.window.num", INT, 11, LOW, READ_ONLY, Range(1),
            "Samples kept to enforce the quota of moves between directories."),
    Setting("controller.quota.window.num", INT, 11, LOW, READ_ONLY, Range(1),
            "Samples kept to enforce the quota of topic changes."),
    Setting("quota.window.size.seconds", INT, 1, LOW, READ_ONLY, Range(1),
            "Length of one sample for client quotas."),
    Setting("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, LOW, READ_ONLY, Range(1),
            "Length of one sample for moves between directories."),
    Setting("controller.quota.window.size.seconds", INT, 1, LOW, READ_ONLY, Range(1),
            "Length of one sample for the quota of topic changes."),
    Setting("client.quota.callback.class", CLASS, None, LOW, READ_ONLY, None,
            "Class that decides which quota applies to a client."),
)
# fmt: on
