"""The committed side of the metadata, the same on every node: the image that is served, and who is told of it.

Images come from one of three places: the log as the high watermark passes over it, a leader's own pending changes once
they are committed (then the image exists already), or a snapshot that replaced the log. Readers see only these.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from config.broker import BrokerConfig
from config.errors import ConfigError
from controller.delta import ImageBuilder, MetadataError
from controller.features import check_supported
from controller.image import EMPTY_IMAGE, RESOURCE_BROKER, ImageDelta, MetadataImage
from controller.image_diff import difference
from controller.metadata_log import MetadataLog
from controller.transactions import TransactionBuffer

_log = logging.getLogger(__name__)

Listener = Callable[[MetadataImage, ImageDelta], None]


class PublishedMetadata:
    def __init__(self, config: BrokerConfig, log: MetadataLog) -> None:
        self.image = EMPTY_IMAGE
        self.effective_config = config
        """The static configuration under the dynamic one of the image."""
        self.next_offset = 0
        """Everything below is in the image, or held back by an open transaction."""
        self._config = config
        self._log = log
        self._transactions = TransactionBuffer()
        self._listeners: list[Listener] = []

    @property
    def in_transaction(self) -> bool:
        """The log ended inside a transaction (KIP-868): the image may not be stored, and a new leader aborts it."""
        return self._transactions.in_transaction

    def subscribe(self, listener: Listener) -> None:
        """Call ``listener`` with every new image, in order, on the loop, before the change is answered.

        A listener must not block; what it raises is logged and does not undo the change.
        """
        self._listeners.append(listener)

    def start_from(self, image: MetadataImage, next_offset: int) -> None:
        """What the snapshot on disk says."""
        self.image = image
        self.next_offset = next_offset
        self.effective_config = self.config_under(image)

    def apply_committed(self) -> bool:
        """One piece of what is committed and not applied. True if more is left. Raises MetadataError."""
        batches, self.next_offset = self._log.read_committed(self.next_offset)
        builder = ImageBuilder(self.image)
        offset, epoch, timestamp = self.image.offset, self.image.epoch, self.image.timestamp
        applied = False
        for batch in batches:
            if not batch.records:
                continue
            try:
                builder.replay_all(self._transactions.feed(batch.records))
            except MetadataError as error:
                raise MetadataError(f"{error} (offset {batch.last_offset} of {self._log.directory})") from None
            offset, epoch, timestamp = batch.last_offset, batch.epoch, batch.timestamp
            applied = True
        if applied:
            image, delta = builder.build(offset, epoch, timestamp)
            if delta.features_changed:
                check_supported(image.features)
            config = self.effective_config
            if any(resource == RESOURCE_BROKER for resource, _ in delta.changed_configs):
                config = self.config_under(image)
            self._publish(image, delta, config)
        return self.next_offset < self._log.high_watermark

    def publish_own(self, image: MetadataImage, delta: ImageDelta, config: BrokerConfig) -> None:
        """A change of this node's as a leader is committed."""
        self.next_offset = image.offset + 1
        self._transactions = TransactionBuffer()
        self._publish(image, delta, config)

    def replace(self, image: MetadataImage) -> None:
        """A snapshot of the leader's stands for everything before it."""
        delta = difference(self.image, image)
        self.next_offset = image.offset + 1
        self._transactions = TransactionBuffer()
        self._publish(image, delta, self.config_under(image))

    def _publish(self, image: MetadataImage, delta: ImageDelta, config: BrokerConfig) -> None:
        self.image, self.effective_config = image, config
        for listener in self._listeners:
            try:
                listener(image, delta)
            except Exception:
                _log.exception("A subscriber failed to apply the metadata at offset %d", image.offset)

    def config_under(self, image: MetadataImage) -> BrokerConfig:
        try:
            return self._config.with_dynamic(
                dynamic_broker=image.broker_configs(self._config.node_id),
                dynamic_default=image.default_broker_configs,
            )
        except ConfigError as error:
            _log.warning("The dynamic configuration is left aside, because it cannot be applied: %s", error)
            return self._config
