"""Reading a filled topic with stock Java consumers that assign its partitions, and with ConsumerPerformance in a group.

The data is in the page cache: it was written a moment ago.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.lab import Broken, Lab, Side, Stopwatch
from bench.model import Case, Metric


@dataclass(frozen=True, slots=True)
class Reading:
    """`readers` consumers read all of a topic of `records` records; with `group` it is the stock tool, in a group."""

    records: int
    quick_records: int
    record_size: int
    partitions: int = 1
    readers: int = 1
    group: bool = False

    @property
    def topic(self) -> str:
        """Cases that read the same data share it."""
        return f"filled-{self.record_size}-{self.partitions}"

    def prepare(self, lab: Lab, side: Side) -> None:
        records = lab.size(self.records, self.quick_records)
        lab.fill(side, self.topic, self.partitions, records, self.record_size)

    def run(self, lab: Lab, side: Side) -> dict[str, float]:
        records = lab.size(self.records, self.quick_records)
        with Stopwatch(side) as watch:
            if self.group:
                tool = lab.java.consume(side.bootstrap, self.topic, records, lab.fresh_name("group"))
                found, size, seconds = tool.records, tool.records * self.record_size, tool.fetch_ms / 1000
            else:
                read = lab.java.read(side.bootstrap, self.topic, self.partitions, records, self.readers)
                found, size, seconds = read.records, read.size, read.seconds
        if found < records * self.readers:
            raise Broken(f"{side.name}: {found} of {records * self.readers} records read")
        return {"throughput": size / 1e6 / seconds, "broker CPU": watch.cost.cpu_seconds / (size / 1e9)}


def _case(
    name: str, reading: Reading, *, faster: float | None = None, cheaper: float | None = None, quick: bool = False
) -> Case:
    metrics = (Metric("throughput", "MB/s", "higher", faster), Metric("broker CPU", "s/GB", "lower", cheaper))
    return Case(name, metrics, reading.run, reading.prepare, quick=quick)


CASES: tuple[Case, ...] = (
    _case("consume 1 KB", Reading(1_000_000, 500_000, 1000), faster=1.2, cheaper=0.4, quick=True),
    _case("consume 1 KB, 6 partitions", Reading(1_000_000, 500_000, 1000, partitions=6)),
    _case("consume 100 B", Reading(5_000_000, 2_000_000, 100)),
    _case("consume 100 B, 6 partitions", Reading(5_000_000, 2_000_000, 100, partitions=6)),
    _case("consume 1 KB, 5 consumers", Reading(1_000_000, 500_000, 1000, readers=5)),
    _case("consume 1 KB, stock tool in a group", Reading(1_000_000, 500_000, 1000, group=True)),
)
