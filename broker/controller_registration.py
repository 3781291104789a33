"""A controller that is not the active one tells it that it is there, where, and what it supports (KIP-919)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from broker.controller_channel import ControllerChannel
from controller.features import SUPPORTED_FEATURES
from controller.image import ImageDelta, MetadataImage
from controller.record_versions import CONTROLLER_REGISTRATION_LEVEL
from protocol.errors import ApiError, ErrorCode
from protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
    Listener,
)

if TYPE_CHECKING:
    from controller.controller import Controller

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 10_000
RETRY_S: Final = 0.5


class ControllerRegistration:
    """Watches the image: as long as it does not show this incarnation of this controller, it is told of it."""

    def __init__(self, controller: Controller, channel: ControllerChannel) -> None:
        self._controller = controller
        self._channel = channel
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._controller.subscribe(self._on_image)
        self._maybe_register()

    def _on_image(self, image: MetadataImage, delta: ImageDelta) -> None:
        if delta.features_changed or self._controller.controller_id in delta.changed_controllers:
            self._maybe_register()

    def _maybe_register(self) -> None:
        if self._task is None and self._is_missing():
            self._task = asyncio.create_task(self._register(), name="controller registration")

    def _is_missing(self) -> bool:
        image = self._controller.image
        if image.features.metadata_version < CONTROLLER_REGISTRATION_LEVEL:
            return False
        registered = image.controllers.get(self._controller.controller_id)
        return registered is None or registered.incarnation_id != self._controller.incarnation_id

    async def _register(self) -> None:
        controller = self._controller
        request = ControllerRegistrationRequest(
            controller_id=controller.controller_id,
            incarnation_id=controller.incarnation_id,
            listeners=[
                Listener(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in controller.endpoints
            ],
            features=[
                Feature(name=name, min_supported_version=levels.min_version, max_supported_version=levels.max_version)
                for name, levels in SUPPORTED_FEATURES.items()
            ],
        )
        try:
            while self._is_missing():
                try:
                    response = await self._channel.ask(
                        request,
                        lambda: controller.on_controller_registration(request),
                        timeout_ms=TIMEOUT_MS,
                        lane="registration",
                    )
                    assert isinstance(response, ControllerRegistrationResponse)
                    if response.error_code == ErrorCode.NONE:
                        return  # the image will show it
                    log.warning("The active controller did not register this one: %s", response.error_message)
                except ApiError as error:
                    log.info("This controller is not registered yet: %s", error)
                await asyncio.sleep(RETRY_S)
        finally:
            self._task = None

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
