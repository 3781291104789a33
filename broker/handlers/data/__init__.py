"""Handlers of the data path: produce, fetch, and what clients ask about a partition's offsets and producers."""

from broker.handlers.data import (
    delete_records,
    describe_producers,
    fetch,
    init_producer_id,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)

__all__ = [
    "delete_records",
    "describe_producers",
    "fetch",
    "init_producer_id",
    "list_offsets",
    "offset_for_leader_epoch",
    "produce",
]
