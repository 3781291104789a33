"""Blocks of producer ids. A broker hands out the ids of its block one by one and asks for the next block."""

from __future__ import annotations

from typing import Final, NamedTuple

from controller.heartbeats import check_broker_epoch
from controller.image import MetadataImage
from controller.outcome import Outcome
from protocol.errors import ApiError, ErrorCode
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from protocol.metadata.producer_ids_record import ProducerIdsRecord

BLOCK_SIZE: Final = 1000  # Kafka's
MAX_PRODUCER_ID: Final = (1 << 63) - 1


class ProducerIdBlock(NamedTuple):
    first: int
    size: int


def allocate_block(image: MetadataImage, broker_id: int, broker_epoch: int) -> Outcome[ProducerIdBlock]:
    """The record names the first id of the *next* block: whoever reads it never gives out this one again, even
    if the broker that asked dies with all of it unused."""
    first = image.next_producer_id
    if first > MAX_PRODUCER_ID - BLOCK_SIZE:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "The cluster has exhausted all available producer ids.")
    record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + BLOCK_SIZE)
    return Outcome([record], ProducerIdBlock(first, BLOCK_SIZE))


def allocate_producer_ids(
    image: MetadataImage, request: AllocateProducerIdsRequest
) -> Outcome[AllocateProducerIdsResponse]:
    """A broker's request. Raises STALE_BROKER_EPOCH: a process that was replaced gets no more ids."""
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    records, block = allocate_block(image, request.broker_id, request.broker_epoch)
    return Outcome(records, AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.size))
