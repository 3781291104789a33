"""The way to the active controller, wherever it is: in this process, or behind its listener on another node.

A request is tried again until it was decided or its time is up: while nobody leads, while the leader does not answer,
and when the node that was asked says that it is not the controller. All requests that go this way can be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from broker.network.client import CallFailed, NodeClients, UnsupportedByPeer
from controller.delta import MetadataError
from protocol.errors import ApiError, ErrorCode
from protocol.schema import Message, Struct

if TYPE_CHECKING:
    from controller.controller import Controller

RETRY_S: Final = 0.05
"""Between two tries while no new leader is known: an election takes about a second, a try is one small message."""


class ControllerChannel:
    def __init__(self, controller: Controller, clients: NodeClients) -> None:
        self._controller = controller
        self._clients = clients

    async def ask(
        self,
        request: Message,
        locally: Callable[[], Awaitable[Message]],
        *,
        timeout_ms: float,
        lane: str,
    ) -> Message:
        """The answer of the active controller. Raises ApiError: REQUEST_TIMED_OUT, or UNSUPPORTED_VERSION."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        why = "no controller is known"
        while (left := deadline - loop.time()) > 0:
            controller = self._controller
            address = controller.leader_address
            epoch = controller.leader_epoch
            answer: Message | None = None
            try:
                if controller.is_active:
                    answer = await asyncio.wait_for(locally(), left)
                elif address is not None:
                    answer = await self._call(address, epoch, request, left * 1000, lane)
            except TimeoutError:
                break
            except UnsupportedByPeer as error:
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from None
            except CallFailed as error:
                why = str(error)
            if answer is not None:
                if not denies_being_controller(answer):
                    return answer
                why = "the node that was asked is not the controller"
            await self._wait_for_leader(epoch, address, min(RETRY_S, max(deadline - loop.time(), 0)))
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"No controller answered in time: {why}.")

    async def _call(
        self, address: tuple[str, int], epoch: int, request: Message, timeout_ms: float, lane: str
    ) -> Message | None:
        """The answer of the node at ``address``; None if another one leads before it has answered.

        A leader that hangs keeps its connections open. What it has not answered it will not commit: it was deposed.
        """
        call = asyncio.ensure_future(self._clients.call(*address, request, timeout_ms, lane=lane))
        moved = asyncio.ensure_future(
            self._controller.wait_until(lambda: self._has_moved(epoch, address), timeout_ms / 1000 + 1)
        )
        try:
            await asyncio.wait({call, moved}, return_when=asyncio.FIRST_COMPLETED)
            return call.result() if call.done() else None
        finally:
            for task in (call, moved):
                task.cancel()
                task.add_done_callback(_retrieve)

    def _has_moved(self, epoch: int, address: tuple[str, int] | None) -> bool:
        """Whether somebody else leads now, not merely whether the leader is gone: it may come back."""
        controller = self._controller
        found = controller.leader_address
        return controller.is_active or (found is not None and (controller.leader_epoch, found) != (epoch, address))

    async def _wait_for_leader(self, epoch: int, address: tuple[str, int] | None, timeout_s: float) -> None:
        """Until leadership moves, or a moment later: the leader may be the same and come back."""
        try:
            await self._controller.wait_until(lambda: self._has_moved(epoch, address), timeout_s)
        except TimeoutError:
            pass
        except (ApiError, MetadataError):  # this node no longer follows the quorum; its own error was logged
            await asyncio.sleep(timeout_s)


def _retrieve(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()


def denies_being_controller(response: Message) -> bool:
    """Whether any part of the response says so; then nothing of the request was done. The quorum itself says it in
    the words of a partition without leader, but only for a whole request."""
    if getattr(response, "error_code", ErrorCode.NONE) == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return True
    return any(code == ErrorCode.NOT_CONTROLLER for code in _error_codes(response))


def _error_codes(part: Any) -> Iterator[int]:
    for declared in part.FIELDS:
        value = getattr(part, declared.name)
        if declared.name == "error_code":
            yield value
        elif isinstance(value, list) and value and isinstance(value[0], Struct):
            for one in value:
                yield from _error_codes(one)
