"""The same raw client against Barnabas, Apache Kafka and the floor: how near to the limit of a Python process we are.

One connection, one partition, five requests on their way; a request carries one batch, a fetch takes one.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench import raw
from bench.lab import Broken, Lab, Side, Stopwatch
from bench.model import Case, Metric, SideName
from protocol.uuids import Uuid

STORED_BYTES = 64 << 20  # what the fetches walk through, again and again; in the page cache
NEAR = 0.7


@dataclass(frozen=True, slots=True)
class Raw:
    """`size` bytes of records per request, `total_mb` per round."""

    size: int
    total_mb: int
    quick_mb: int

    def requests(self, lab: Lab) -> int:
        return lab.size(self.total_mb, self.quick_mb) * 1_000_000 // self.size

    @property
    def client_id(self) -> str:
        return f"raw-{self.size}"

    def produce(self, lab: Lab, side: Side) -> dict[str, float]:
        topic = lab.fresh_name("raw")
        is_floor = side.name == "floor"
        if not is_floor:
            side.create_topic(topic)
        batch = raw.make_batch(self.size)
        requests = self.requests(lab)
        with Stopwatch(side) as watch:
            seconds = raw.run_produce(side.port, raw.produce_frame(topic, batch.data, self.client_id), requests)
        if not is_floor:
            arrived = side.end_offsets(topic, 1)
            side.delete_topic(topic)
            if arrived != requests * batch.records:
                raise Broken(f"{side.name}: {arrived} of {requests * batch.records} records arrived")
        return self._result(seconds, watch, requests * len(batch.data), requests)

    def prepare_fetch(self, lab: Lab, side: Side) -> None:
        topic = f"raw-fetch-{self.size}"
        if side.name != "floor":
            side.create_topic(topic)
        batch = raw.make_batch(self.size)
        raw.run_produce(side.port, raw.produce_frame(topic, batch.data, self.client_id), STORED_BYTES // self.size)

    def fetch(self, lab: Lab, side: Side) -> dict[str, float]:
        topic_id = Uuid.ZERO if side.name == "floor" else side.create_topic(f"raw-fetch-{self.size}")
        batch = raw.make_batch(self.size)
        frame, position = raw.fetch_template(topic_id, len(batch.data), self.client_id)
        requests = self.requests(lab)
        with Stopwatch(side) as watch:
            seconds = raw.run_fetch(side.port, frame, position, batch, STORED_BYTES // self.size, requests)
        return self._result(seconds, watch, requests * len(batch.data), requests)

    def _result(self, seconds: float, watch: Stopwatch, size: int, requests: int) -> dict[str, float]:
        return {"throughput": size / 1e6 / seconds, "broker CPU": watch.cost.cpu_seconds / requests * 1e6}


_METRICS = (Metric("throughput", "MB/s", "higher", NEAR), Metric("broker CPU", "us/request", "lower"))
_SIDES: tuple[SideName, ...] = ("kafka", "barnabas", "floor")
_SIZES = (("16 KB", Raw(16384, 400, 160)), ("64 KB", Raw(65536, 800, 300)), ("1 MB", Raw(1048576, 1500, 600)))

CASES: tuple[Case, ...] = (
    *(
        Case(f"raw produce {name}", _METRICS, raw_load.produce, sides=_SIDES, quick=name != "64 KB")
        for name, raw_load in _SIZES
    ),
    *(
        Case(f"raw fetch {name}", _METRICS, raw_load.fetch, raw_load.prepare_fetch, sides=_SIDES, quick=name != "64 KB")
        for name, raw_load in _SIZES
    ),
)
