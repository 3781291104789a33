"""kill -9 of the broker while ten groups commit: no acknowledged commit is lost, none goes backwards."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from support.broker_process import BrokerProcess
from support.group_requests import beat, commit, fetch, join, sync
from support.talk import Talk
from support.wire import Wire

TOPIC = "committed"
GROUPS = [f"group-{number}" for number in range(10)]
WITH_MEMBER = GROUPS[::2]
"""Half of the groups have a member, which must still be one after the restart; the others are simple consumers."""

ROUNDS = 6
MOST_COMMITS = 400


class Committer:
    """One group's client. It commits 1, 2, 3, ... and remembers what was sent and what was acknowledged."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.member = ""
        self.generation = -1
        self.sent = 0
        self.acknowledged = 0
        self.refused: list[int] = []

    def join(self, port: int) -> None:
        with Wire(port) as wire:
            joined = wire.ask(join(self.group, session_ms=60_000, topics=(TOPIC,)), 3)
            assert joined.error_code == 0, joined
            self.member, self.generation = joined.member_id, joined.generation_id
            synced = wire.ask(sync(self.group, self.member, self.generation, assigned=(self.member,)), 2)
            assert synced.error_code == 0, synced

    def run(self, port: int, stop: threading.Event) -> None:
        """Until the connection breaks: then nobody knows about the last one."""
        try:
            with Wire(port) as wire:
                while not stop.is_set():
                    self.sent += 1
                    request = commit(
                        self.group,
                        TOPIC,
                        offset=self.sent,
                        member=self.member,
                        generation=self.generation,
                        metadata=f"commit {self.sent}",
                    )
                    (topic,) = wire.ask(request, 9).topics
                    (partition,) = topic.partitions
                    if partition.error_code:
                        self.refused.append(partition.error_code)
                        return
                    self.acknowledged = self.sent
        except OSError:
            return

    def check(self, wire: Wire) -> None:
        answer = wire.ask(fetch(self.group, topics={TOPIC: [0]}), 9).groups[0]
        assert answer.error_code == 0, answer
        (partition,) = answer.topics[0].partitions
        stored = max(partition.committed_offset, 0)  # -1: the kill came before this group's first commit
        assert self.acknowledged <= stored <= self.sent, self.group
        assert partition.metadata == (f"commit {stored}" if stored else "")
        if self.member:
            assert wire.ask(beat(self.group, self.member, self.generation), 4).error_code == 0
        # What was not acknowledged may have been stored; from here on it counts.
        self.sent = self.acknowledged = stored


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["", "1"], ids=["page cache", "every commit synced"])
def test_no_acknowledged_commit_is_lost_by_kill_9(tmp_path: Path, flush: str) -> None:
    """`log.flush.interval.messages=1` makes every answer wait for a sync: the slow path of the same promise."""
    extra = {"log.flush.interval.messages": flush} if flush else {}
    broker = BrokerProcess(tmp_path / "broker", extra={"offsets.topic.num.partitions": "4", **extra})
    rng = random.Random(10)
    committers = [Committer(group) for group in GROUPS]
    try:
        broker.start()
        with Talk(broker.port) as talk:
            talk.create_topic(TOPIC)
            talk.find_coordinator(GROUPS[0])
        for committer in committers:
            if committer.group in WITH_MEMBER:
                committer.join(broker.port)
        for _ in range(ROUNDS):
            stop = threading.Event()
            threads = [threading.Thread(target=one.run, args=(broker.port, stop)) for one in committers]
            before = sum(one.acknowledged for one in committers)
            goal = before + rng.randrange(20, MOST_COMMITS)
            for thread in threads:
                thread.start()
            while sum(one.acknowledged for one in committers) < goal and any(map(threading.Thread.is_alive, threads)):
                pass  # the kill comes at once, in the middle of what goes on
            broker.kill()
            for thread in threads:
                thread.join(10)
            assert not any(one.refused for one in committers), [one.refused for one in committers]
            assert sum(one.acknowledged for one in committers) >= goal
            broker.start()
            with Talk(broker.port) as talk:
                talk.until(fetch(*GROUPS), 9, lambda answer: all(group.error_code == 0 for group in answer.groups))
                for one in committers:
                    one.check(talk.wire)
        broker.stop()
    finally:
        broker.close()
