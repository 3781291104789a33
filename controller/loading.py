"""From disk to the first image: the latest snapshot. The log after it counts as the quorum says it is committed."""

from __future__ import annotations

from controller.delta import ImageBuilder
from controller.features import check_supported
from controller.image import EMPTY_IMAGE, MetadataImage
from controller.metadata_log import MetadataLog


def load(log: MetadataLog) -> tuple[MetadataImage, int]:
    """Blocking. The image of the latest snapshot, and the offset from which the log goes on."""
    snapshot = log.open()
    if snapshot is None or log.snapshot_id is None:
        return EMPTY_IMAGE, log.log.log_start_offset
    builder = ImageBuilder(EMPTY_IMAGE)
    builder.replay_all(snapshot.records)
    end_offset, epoch = log.snapshot_id
    image, _ = builder.build(end_offset - 1, epoch, snapshot.last_contained_timestamp)
    check_supported(image.features)
    return image, end_offset
