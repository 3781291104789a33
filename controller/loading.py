"""From disk to the first image: the latest snapshot, then the log after it."""

from __future__ import annotations

from controller.delta import ImageBuilder, MetadataError
from controller.endpoints import sole_voter
from controller.features import check_supported
from controller.image import EMPTY_IMAGE, Endpoint, MetadataImage
from controller.metadata_log import MetadataLog
from controller.transactions import TransactionBuffer
from protocol.messages.voters_record import VotersRecord
from protocol.metadata.abort_transaction_record import AbortTransactionRecord
from protocol.schema import Message


def load(log: MetadataLog) -> tuple[MetadataImage, Message | None]:
    """Blocking. The image, and the record that must be written next if the log ends inside a transaction."""
    snapshot = log.open()
    builder = ImageBuilder(EMPTY_IMAGE)
    offset, epoch, timestamp = -1, 0, 0
    if snapshot is not None and log.snapshot_id is not None:
        builder.replay_all(snapshot.records)
        offset, epoch = log.snapshot_id.end_offset - 1, log.snapshot_id.epoch
        timestamp = snapshot.last_contained_timestamp
    transactions = TransactionBuffer()
    for batch in log.replay():
        try:
            builder.replay_all(transactions.feed(batch.records))
        except MetadataError as error:
            raise MetadataError(f"{error} (offset {batch.last_offset} of {log.directory})") from None
        offset, epoch, timestamp = batch.last_offset, batch.epoch, batch.timestamp
    # Control batches at the end of the log move its end, not the image; the next record's offset comes from the log.
    image, _ = builder.build(offset, epoch, timestamp)
    check_supported(image.features)
    abort = None
    if transactions.in_transaction:
        abort = AbortTransactionRecord(reason="the controller that began it stopped before its end")
    return image, abort


def voters_with_this_node(log: MetadataLog, endpoints: list[Endpoint]) -> VotersRecord:
    """The voter set, with this node at its present endpoints. Only a quorum of this node alone is led here."""
    here = sole_voter(log.node.node_id, log.node.metadata_directory_id, endpoints)
    if log.voters is None:
        return here
    ids = [(voter.voter_id, voter.voter_directory_id) for voter in log.voters.voters]
    if ids != [(log.node.node_id, log.node.metadata_directory_id)]:
        listed = ", ".join(f"{voter_id} (directory {directory})" for voter_id, directory in ids)
        raise MetadataError(
            f"the quorum of {log.directory} has the voters {listed}; this node is {log.node.node_id} (directory "
            f"{log.node.metadata_directory_id}) and can only lead a quorum in which it is the only voter"
        )
    return here
