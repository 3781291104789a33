"""What a pure core wants done: records to append, then replies to send."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from broker.coordinator.records import CoordinatorRecord

__all__ = ["CoordinatorRecord", "Effects", "Reply"]


class Reply(NamedTuple):
    """The answer to the request that was given with ``token``."""

    token: object
    response: Any


class Effects:
    """The outcome of one input.

    The shell appends ``records`` as one batch, waits as acks=all would, and only then sends ``replies`` in order. The
    core's state has already changed when it returns: if the append fails, the shell answers every reply with
    COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR and rebuilds the core from the log, so nothing is ever undone.

    Replies without records may leave at once only while no earlier append of the same shard is pending; otherwise they
    wait for it. They may tell of state (a new generation, an offset) that the pending append has yet to make durable.
    """

    __slots__ = ("records", "replies")

    def __init__(self, records: Iterable[CoordinatorRecord] = (), replies: Iterable[Reply] = ()) -> None:
        self.records: list[CoordinatorRecord] = list(records)
        self.replies: list[Reply] = list(replies)

    @classmethod
    def reply(cls, token: object, response: Any) -> Effects:
        return cls(replies=(Reply(token, response),))

    def add_reply(self, token: object, response: Any) -> None:
        self.replies.append(Reply(token, response))

    def extend(self, other: Effects) -> Effects:
        """Appends the other's effects behind these; returns self, so that steps of one input can be chained."""
        self.records.extend(other.records)
        self.replies.extend(other.replies)
        return self

    def __bool__(self) -> bool:
        return bool(self.records or self.replies)

    def __repr__(self) -> str:
        return f"Effects(records={self.records!r}, replies={self.replies!r})"
