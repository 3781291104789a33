"""What every group has to do, whichever client and protocol: share the partitions, hand them over, lose nothing."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence

from kafka import KafkaAdminClient, KafkaProducer
from support.processes import wait_until
from support.python_clients import Member

SETTLE_S = 30


class Feed:
    """Numbered records for the partitions of some topics."""

    def __init__(self, bootstrap: str, topics: dict[str, int]) -> None:
        self.partitions = {(topic, index) for topic, count in topics.items() for index in range(count)}
        self.sent: list[tuple[str, int, int, str]] = []
        self._numbers = itertools.count()
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        admin.create_topics({name: {"num_partitions": count} for name, count in topics.items()}, wait_for_metadata=True)
        admin.close()
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=0)

    def send(self, per_partition: int = 5) -> None:
        futures = []
        for topic, index in sorted(self.partitions) * per_partition:
            value = str(next(self._numbers))
            futures.append((self._producer.send(topic, value=value.encode(), partition=index), value))
        for future, value in futures:
            done = future.get(30)
            self.sent.append((done.topic, done.partition, done.offset, value))

    def close(self) -> None:
        self._producer.close()


def check_alive(members: Sequence[Member]) -> None:
    for member in members:
        if member.failure is not None:
            raise AssertionError(f"a member failed: {member.failure}") from member.failure


def wait_for_sharing(members: Sequence[Member], partitions: set[tuple[str, int]]) -> None:
    """Every partition has one owner and every member owns something."""

    def shared() -> bool:
        check_alive(members)
        owned = [set(member.assigned) for member in members]
        return all(owned) and sum(map(len, owned)) == len(partitions) and set().union(*owned) == partitions

    try:
        wait_until(shared, SETTLE_S, "each partition has one owner")
    except TimeoutError as error:
        raise AssertionError(f"{error}: {[sorted(member.assigned) for member in members]}") from None


def wait_for_records(members: Sequence[Member], sent: Sequence[tuple[str, int, int, str]]) -> None:
    """Everything that was sent was seen, and nothing twice."""

    def complete() -> bool:
        check_alive(members)
        return sum(len(member.seen) for member in members) >= len(sent)

    with contextlib.suppress(TimeoutError):  # the comparison below says what is missing
        wait_until(complete, SETTLE_S, "all records were seen")
    assert sorted(record for member in members for record in list(member.seen)) == sorted(sent)


def live(feed: Feed, make: Callable[[], Member]) -> None:
    """One member, then two, then the other one alone: every record is seen once."""
    first = make()
    members = [first]
    try:
        wait_for_sharing([first], feed.partitions)
        feed.send()
        wait_for_records(members, feed.sent)
        second = make()
        members.append(second)
        wait_for_sharing([first, second], feed.partitions)
        feed.send()
        wait_for_records(members, feed.sent)
        first.close()
        wait_for_sharing([second], feed.partitions)
        feed.send()
        wait_for_records(members, feed.sent)
    finally:
        for member in members:
            member.close()
