"""Producing with Apache Kafka's ProducerPerformance, as fast as it goes, into a fresh topic per round.

Megabytes are 10^6 bytes of record values. A round counts only if the broker's end offsets say that every record
arrived.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from support.tools import PRODUCER_PERFORMANCE

from bench.java_clients import produce_arguments
from bench.lab import Broken, Lab, Side, Stopwatch
from bench.model import Case, Metric

PAYLOADS = 500


@dataclass(frozen=True, slots=True)
class Load:
    """What is produced: `quick_records` in the short form, `producers` of them at once, into `partitions`."""

    records: int
    quick_records: int
    record_size: int
    partitions: int = 1
    replicas: int = 1
    producers: int = 1
    text: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)

    def run(self, lab: Lab, side: Side) -> dict[str, float]:
        topic = lab.fresh_name("produce")
        side.create_topic(topic, self.partitions, self.replicas)
        each = lab.size(self.records, self.quick_records) // self.producers
        total = each * self.producers
        payloads = payload_file(lab, self.record_size) if self.text else None
        with Stopwatch(side) as watch:
            if self.producers == 1:
                done = lab.java.produce(side.bootstrap, topic, each, self.record_size, self.settings, payloads)
                seconds = each / done.records_per_s
            else:
                arguments = produce_arguments(side.bootstrap, topic, each, self.record_size, self.settings, payloads)
                seconds = lab.java.at_once(PRODUCER_PERFORMANCE, [arguments] * self.producers)
        arrived = side.end_offsets(topic, self.partitions)
        side.delete_topic(topic)
        if arrived != total:
            raise Broken(f"{side.name}: {arrived} of {total} records arrived")
        size = total * self.record_size
        return {"throughput": size / 1e6 / seconds, "broker CPU": watch.cost.cpu_seconds / (size / 1e9)}


def payload_file(lab: Lab, size: int) -> Path:
    """Lines of JSON of exactly `size` bytes, the same in every run: random letters would not compress like data."""
    path = lab.directory / f"payloads-{size}.txt"
    if not path.exists():
        rng = random.Random(size)
        lines = [json_line(rng, size) for _ in range(PAYLOADS)]
        path.write_text("".join(f"{line}\n" for line in lines))
    return path


def json_line(rng: random.Random, size: int) -> str:
    events = ("page_view", "add_to_cart", "checkout", "search", "login")
    items = []
    while True:
        items.append(
            {
                "event": rng.choice(events),
                "user": rng.randrange(10**6),
                "price": round(rng.uniform(1, 500), 2),
                "session": f"{rng.getrandbits(64):016x}",
            }
        )
        line = json.dumps({"items": items})
        if len(line) >= size:
            return line[:size]


def _case(
    name: str, load: Load, *, faster: float | None = None, cheaper: float | None = None, quick: bool = True
) -> Case:
    metrics = (Metric("throughput", "MB/s", "higher", faster), Metric("broker CPU", "s/GB", "lower", cheaper))
    return Case(name, metrics, load.run, quick=quick)


IDEMPOTENT = {"acks": "all", "enable.idempotence": "true", "batch.size": "65536"}

CASES: tuple[Case, ...] = (
    _case("produce 1 KB acks=1", Load(300_000, 120_000, 1000, settings={"acks": "1"}), faster=1.8, cheaper=0.4),
    _case(
        "produce 1 KB acks=all, 6 partitions",
        Load(400_000, 150_000, 1000, partitions=6, settings=IDEMPOTENT),
        faster=1.5,
        cheaper=0.5,
    ),
    _case("produce 100 B acks=1", Load(2_000_000, 700_000, 100, settings={"acks": "1"}), faster=1.3, cheaper=0.5),
    _case(
        "produce 1 KB lz4",
        Load(400_000, 120_000, 1000, text=True, settings={"acks": "1", "compression.type": "lz4"}),
        quick=False,
    ),
    _case(
        "produce 1 KB zstd",
        Load(400_000, 120_000, 1000, text=True, settings={"acks": "1", "compression.type": "zstd"}),
        quick=False,
    ),
    _case(
        "produce 1 KB, 10 producers",
        Load(400_000, 120_000, 1000, partitions=6, producers=10, settings={"acks": "1"}),
        quick=False,
    ),
)
