"""Classic groups: how long a rebalance takes, and a thousand groups that commit; the members are of our own making."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import uvloop

from bench import group_client
from bench.lab import Lab, Side, Stopwatch
from bench.model import Case, Metric
from bench.stats import percentile

COMMITS_PER_S = 1.0
FORMING = 50  # groups that form at the same time


def _run(coroutine: Coroutine[Any, Any, dict[str, float]]) -> dict[str, float]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(coroutine)


async def _rebalances(group: str, side: Side, count: int, times: int) -> dict[str, float]:
    await group_client.find_coordinator(side.port, group)
    members = await group_client.form(group, side.port, count)
    with Stopwatch(side) as watch:
        seconds = sum([await group_client.rebalance(members) for _ in range(times)])
    await group_client.disband(members)
    return {"time": seconds / times * 1000, "broker CPU": watch.cost.cpu_seconds / times * 1000}


def _rebalance_case(count: int, times: int, quick_times: int) -> Case:
    def run(lab: Lab, side: Side) -> dict[str, float]:
        return _run(_rebalances(lab.fresh_name("group"), side, count, lab.size(times, quick_times)))

    metrics = (Metric("time", "ms", "lower", 1.0), Metric("broker CPU", "ms", "lower", 0.5))
    return Case(f"rebalance of {count}", metrics, run)


async def _commits(stem: str, side: Side, topic: str, groups: int, seconds: int) -> dict[str, float]:
    await group_client.find_coordinator(side.port, stem)
    gate = asyncio.Semaphore(FORMING)

    async def start(number: int) -> group_client.Member:
        async with gate:
            connection = await group_client.Connection.open(side.port)
            member = group_client.Member(f"{stem}-{number}", connection)
            await member.enter()
            return member

    members = await asyncio.gather(*(start(number) for number in range(groups)))
    latencies: list[float] = []

    async def commit(member: group_client.Member, phase: float, begin: float) -> None:
        """In an open loop: a commit is due at its time and counts from then."""
        for number in range(seconds):
            due = begin + phase + number / COMMITS_PER_S
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await member.commit(topic, number)
            latencies.append((time.perf_counter() - due) * 1000)

    with Stopwatch(side) as watch:
        begin = time.perf_counter()
        await asyncio.gather(*(commit(member, index / groups, begin) for index, member in enumerate(members)))
    await group_client.disband(members)
    return {
        "p50": percentile(latencies, 50),
        "p99": percentile(latencies, 99),
        "broker CPU": watch.cost.cpu_seconds / len(latencies) * 1e6,
    }


def _commit_case() -> Case:
    def run(lab: Lab, side: Side) -> dict[str, float]:
        side.create_topic("committed")
        stem = lab.fresh_name("committing")
        return _run(_commits(stem, side, "committed", 1000, lab.size(15, 4)))

    metrics = (
        Metric("p50", "ms", "lower"),
        Metric("p99", "ms", "lower", 1.0),
        Metric("broker CPU", "us/commit", "lower", 0.5),
    )
    return Case("1,000 groups committing", metrics, run)


CASES: tuple[Case, ...] = (
    _rebalance_case(3, 1000, 200),
    _rebalance_case(50, 200, 40),
    _rebalance_case(200, 40, 10),
    _commit_case(),
)
