"""What a state machine of the controller answers: records to append, and the response once they are durable."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from protocol.schema import Message

R = TypeVar("R")


class Outcome(NamedTuple, Generic[R]):
    """The records go into the log as one batch, all or nothing; none means that nothing has to be written."""

    records: list[Message]
    response: R
