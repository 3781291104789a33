"""From the start of the process to the first acknowledged record, and memory: idle, and after all load of the run.

The start is that of a broker that was stopped in order and has its topic already. For Apache Kafka formatting is a
program of its own and not counted; Barnabas did it in its first start, which is not counted either.
"""

from __future__ import annotations

import time

from support.wire import Wire

from bench.lab import Broken, Lab, Side
from bench.model import Case, Metric
from bench.raw import PRODUCE_VERSION, make_batch, produce_frame
from bench.servers import Barnabas, Kafka

TOPIC = "first"
LIMIT_S = 60
RETRY_S = 0.005  # the resolution of the measurement
FIRST_RECORD = produce_frame(TOPIC, make_batch(200).data)
_servers: dict[str, Barnabas | Kafka] = {}


def prepare(lab: Lab, side: Side) -> None:
    server = _servers[side.name] = lab.new_server(side.name)
    server.start()
    Side(side.name, server).create_topic(TOPIC)
    server.stop()


def run(lab: Lab, side: Side) -> dict[str, float]:
    server = _servers[side.name]
    begin = time.perf_counter()
    server.launch()
    while not _acknowledged(server.port):
        if time.perf_counter() - begin > LIMIT_S:
            raise Broken(f"{side.name}: no record acknowledged within {LIMIT_S} s")
        time.sleep(RETRY_S)
    seconds = time.perf_counter() - begin
    time.sleep(lab.size(5, 2))  # memory is that of a broker whose start-up work has died down
    resident = Side(side.name, server).resident_mb()
    server.stop()
    return {"start to first record": seconds, "memory idle": resident}


def finish(lab: Lab, side: Side) -> None:
    server = _servers.pop(side.name, None)
    if server is not None:
        server.close()


def _acknowledged(port: int) -> bool:
    """Whether a record is acknowledged now: connect, produce, error code zero."""
    try:
        with Wire(port) as wire:
            wire.socket.sendall(FIRST_RECORD)
            answer = wire.read_response(0, PRODUCE_VERSION)
    except OSError:
        return False
    code: int = answer.responses[0].partition_responses[0].error_code
    return code == 0


def memory_after_load(lab: Lab, side: Side) -> dict[str, float]:
    """The broker that all other cases loaded. One process, so the rounds are readings of the same."""
    return {"memory after load": side.resident_mb()}


CASES: tuple[Case, ...] = (
    Case(
        "start",
        (Metric("start to first record", "s", "lower", 0.12), Metric("memory idle", "MB", "lower", 0.15)),
        run,
        prepare,
        finish,
    ),
)
AFTER_LOAD: tuple[Case, ...] = (
    Case("load", (Metric("memory after load", "MB", "lower", 0.12),), memory_after_load, warm_ups=0),
)
