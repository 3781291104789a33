"""Transactions and idempotent producers."""

from __future__ import annotations

from config.checks import Range
from config.definitions import Setting
from config.settings.words import (
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LOW,
    READ_ONLY,
    SHORT,
)

# fmt: off
SETTINGS: tuple[Setting, ...] = (
    Setting("transaction.state.log.min.isr", INT, 2, HIGH, READ_ONLY, Range(1),
            "In-sync replicas needed to write the transaction topic."),
    Setting("transaction.state.log.load.buffer.size", INT, 5_242_880, HIGH, READ_ONLY, Range(1),
            "Read size when transaction state is loaded."),
    Setting("transaction.state.log.replication.factor", SHORT, 3, HIGH, READ_ONLY, Range(1),
            "Replicas of the transaction topic."),
    Setting("transaction.state.log.num.partitions", INT, 50, HIGH, READ_ONLY, Range(1),
            "Partitions of the transaction topic."),
    Setting("transaction.state.log.segment.bytes", INT, 104_857_600, HIGH, READ_ONLY, Range(1),
            "Segment size of the transaction topic."),
    Setting("transaction.partition.verification.enable", BOOLEAN, True, LOW, CLUSTER_WIDE, None,
            "Check that a partition is part of the transaction before writing to it."),
    Setting("producer.id.expiration.ms", INT, 86_400_000, LOW, CLUSTER_WIDE, Range(1),
            "How long the state of a silent producer is remembered."),
    Setting("producer.id.expiration.check.interval.ms", INT, 600_000, LOW, READ_ONLY, Range(1),
            "How often silent producers are looked for.", internal=True),
    Setting("transactional.id.expiration.ms", INT, 604_800_000, HIGH, READ_ONLY, Range(1),
            "How long an unused transactional id is remembered."),
    Setting("transaction.max.timeout.ms", INT, 900_000, HIGH, READ_ONLY, Range(1),
            "Longest transaction timeout a producer may ask for."),
    Setting("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000, LOW, READ_ONLY,
            Range(1),
            "How often overdue transactions are looked for."),
    Setting("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000, LOW, READ_ONLY,
            Range(1),
            "How often expired transactional ids are removed."),
    Setting("transaction.two.phase.commit.enable", BOOLEAN, False, LOW, READ_ONLY, None,
            "Permit transactions that an outside coordinator ends."),
    Setting("add.partitions.to.txn.retry.backoff.max.ms", INT, 100, HIGH, READ_ONLY, Range(0),
            "Longest wait on the broker before a partition is added again."),
    Setting("add.partitions.to.txn.retry.backoff.ms", INT, 20, HIGH, READ_ONLY, Range(1),
            "Wait on the broker before a partition is added to a transaction again."),
)
# fmt: on
