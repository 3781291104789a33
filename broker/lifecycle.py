"""A broker's life as the controller sees it: registered and fenced, unfenced, about to stop.

The broker registers with a new incarnation id at every start, then sends heartbeats for as long as it lives. It asks to
be unfenced once it serves; it is then told to clients and may lead. Before it stops it asks to, and goes on beating
until the controller has moved its leadership away and lets it go.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from broker.controller_channel import ControllerChannel
from config.broker import BrokerConfig
from controller.features import SUPPORTED_FEATURES
from controller.image import Endpoint
from protocol.errors import ApiError, ErrorCode
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from protocol.uuids import Uuid

if TYPE_CHECKING:
    from controller.controller import Controller

log = logging.getLogger(__name__)

LANE: Final = "heartbeat"
RETRY_S: Final = 0.2
"""Between two tries to register while a dead incarnation's session lasts, or after an error that may pass."""
_FATAL: Final = frozenset({ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.UNSUPPORTED_VERSION})


class RegistrationFailed(Exception):
    """Why the controller does not take this broker, in a sentence for the person who started it."""


class BrokerLifecycle:
    """Owns the heartbeat task and the broker epoch."""

    def __init__(
        self,
        config: BrokerConfig,
        controller: Controller,
        channel: ControllerChannel,
        *,
        offline_directories: Callable[[], list[Uuid]],
        cordoned_directories: Callable[[], list[Uuid]],
    ) -> None:
        self.epoch = -1
        self.is_fenced = True
        self._config = config
        self._controller = controller
        self._channel = channel
        self._offline_directories = offline_directories
        self._cordoned_directories = cordoned_directories
        self._want_fence = True
        self._want_shut_down = False
        self._due = asyncio.Event()
        self._changed = asyncio.Event()
        self._may_stop = False
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    async def register(self, endpoints: Sequence[Endpoint], directories: Sequence[Uuid], previous_epoch: int) -> None:
        """Return when the registration is committed. Raises RegistrationFailed."""
        request = BrokerRegistrationRequest(
            broker_id=self._config.node_id,
            cluster_id=self._controller.cluster_id,
            incarnation_id=self._controller.incarnation_id,
            listeners=[
                Listener(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in endpoints
            ],
            features=[
                Feature(name=name, min_supported_version=levels.min_version, max_supported_version=levels.max_version)
                for name, levels in SUPPORTED_FEATURES.items()
            ],
            rack=self._config.broker_rack,
            log_dirs=list(directories),
            previous_broker_epoch=previous_epoch,
        )
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._config.initial_broker_registration_timeout_ms / 1000
        told: ErrorCode | None = None
        while (left := deadline - loop.time()) > 0:
            error = await self._try_to_register(request, left * 1000)
            if error is ErrorCode.NONE:
                log.info("Registered with the controller, broker epoch %d", self.epoch)
                self._task = asyncio.create_task(self._beat(), name="heartbeats")
                return
            if error in _FATAL:
                raise RegistrationFailed(f"the controller does not take this broker: {_REASONS[error]}")
            if error is not told:
                told = error
                log.warning("The controller does not take this broker yet: %s", _REASONS.get(error, error.name))
            await asyncio.sleep(min(RETRY_S, max(deadline - loop.time(), 0)))
        seconds = self._config.initial_broker_registration_timeout_ms / 1000
        reason = "no controller answered" if told is None else _REASONS.get(told, told.name)
        raise RegistrationFailed(f"this broker could not register within {seconds:.0f} s: {reason}")

    async def _try_to_register(self, request: BrokerRegistrationRequest, timeout_ms: float) -> ErrorCode:
        try:
            response = await self._channel.ask(
                request, lambda: self._controller.on_broker_registration(request), timeout_ms=timeout_ms, lane=LANE
            )
        except ApiError as error:
            return error.code
        assert isinstance(response, BrokerRegistrationResponse)
        if response.error_code == ErrorCode.NONE:
            self.epoch = response.broker_epoch
        return ErrorCode(response.error_code)

    async def unfence(self) -> None:
        """This broker serves: return when the controller has told everyone."""
        self._want_fence = False
        self._due.set()
        while self.is_fenced:
            self._changed.clear()
            await self._changed.wait()

    def beat_now(self) -> None:
        """There is news for the controller, such as a log directory that is lost: it need not wait its turn."""
        self._due.set()

    async def allocate_producer_ids(self) -> tuple[int, int]:
        """A block of producer ids for this broker, never given out before: the first, and how many. Raises ApiError."""
        request = AllocateProducerIdsRequest(broker_id=self._config.node_id, broker_epoch=self.epoch)
        response = await self._channel.ask(
            request,
            lambda: self._controller.on_allocate_producer_ids(request),
            timeout_ms=self._config.request_timeout_ms,
            lane="producer-ids",
        )
        assert isinstance(response, AllocateProducerIdsResponse)
        if response.error_code != ErrorCode.NONE:
            raise ApiError(ErrorCode(response.error_code))
        return response.producer_id_start, response.producer_id_len

    async def shut_down(self, timeout_s: float) -> None:
        """Ask to stop and wait until the controller agrees, but not for ever: it may be gone for good."""
        if self._task is None or self._want_shut_down:
            return
        self._want_shut_down = True
        self._due.set()
        try:
            async with asyncio.timeout(timeout_s):
                while not self._may_stop:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            log.warning("Stopping without the controller's consent: it did not give it within %.0f s", timeout_s)

    async def stop(self) -> None:
        self._stopping = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _beat(self) -> None:
        interval_s = self._config.broker_heartbeat_interval_ms / 1000
        while not self._may_stop:
            try:
                response = await self._send(self._heartbeat())
            except ApiError as error:
                log.warning("The heartbeat failed: %s", error)
                continue
            wait_s = interval_s
            if response.error_code != ErrorCode.NONE:
                log.warning("The controller refused a heartbeat: %s", ErrorCode(response.error_code).name)
            else:
                wait_s = self._on_response(response, interval_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._due.wait()
            self._due.clear()

    async def _send(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        response = await self._channel.ask(
            request,
            lambda: self._controller.on_broker_heartbeat(request),
            timeout_ms=self._config.broker_session_timeout_ms,
            lane=LANE,
        )
        assert isinstance(response, BrokerHeartbeatResponse)
        return response

    def _heartbeat(self) -> BrokerHeartbeatRequest:
        return BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._controller.image.offset,
            want_fence=self._want_fence,
            want_shut_down=self._want_shut_down,
            offline_log_dirs=self._offline_directories(),
            cordoned_log_dirs=self._cordoned_directories(),
        )

    def _on_response(self, response: BrokerHeartbeatResponse, interval_s: float) -> float:
        """Take in what the controller says; returns how long the next heartbeat may wait."""
        if response.is_fenced != self.is_fenced:
            self.is_fenced = response.is_fenced
            log.info("This broker is %s", "fenced" if response.is_fenced else "unfenced")
        self._may_stop = response.should_shut_down
        self._changed.set()
        waits_for_controller = (self.is_fenced and not self._want_fence) or self._want_shut_down
        return min(RETRY_S, interval_s) if waits_for_controller else interval_s


_REASONS: Final = {
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "another broker with this node.id is alive, or was until a moment ago",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "it belongs to another cluster (cluster.id in meta.properties)",
    ErrorCode.REQUEST_TIMED_OUT: "no controller answered",
    ErrorCode.UNSUPPORTED_VERSION: "it does not support the cluster's finalized features",
    ErrorCode.INVALID_REGISTRATION: "its registration is invalid, for instance with another broker's directory id",
}
