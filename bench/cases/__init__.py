"""All cases, in the order of a run.

Start-up first, on an unloaded machine; then what moves records, on one broker and on three; then groups and Spark;
memory after all that load; and last the cases that want the machine for themselves.
"""

from __future__ import annotations

from bench.cases import (
    consume,
    floor,
    groups,
    latency,
    partitions,
    produce,
    python_client,
    quorum,
    replication,
    spark,
    startup,
)
from bench.model import Case

CASES: tuple[Case, ...] = (
    *startup.CASES,
    *produce.CASES,
    *consume.CASES,
    *latency.CASES,
    *replication.CASES,
    *python_client.CASES,
    *groups.CASES,
    *spark.CASES,
    *floor.CASES,
    *startup.AFTER_LOAD,
    *partitions.CASES,
    *quorum.CASES,
)
