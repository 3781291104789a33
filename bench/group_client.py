"""Members of classic groups on one event loop: two hundred of them need no two hundred JVMs.

They speak the protocol as a consumer does: join (again with the member id they are given), sync, heartbeat, rejoin
when a heartbeat says that the group rebalances. What differs is their eagerness: after a change they ask at once
instead of at their next heartbeat, so that a measurement shows the broker and not the interval.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from protocol.errors import ErrorCode
from protocol.header import encode_request, response_header_version
from protocol.messages import response_class
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from protocol.schema import Message

SESSION_MS = 600_000  # no member is lost for being idle while the other side is measured
COMMIT_VERSION = 9  # the last that names the topic
BEAT_S = 0.1  # while a group forms
PATIENCE_S = 60
RETRY_S = 0.05

_NOT_YET = frozenset(
    (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
)
_REJOIN = frozenset((ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION))
_SUBSCRIPTION = b"\0\0\0\0\0\1\0\4none\xff\xff\xff\xff"  # version 0: one topic, no user data
_ASSIGNMENT = b"\0\0\0\0\0\0\xff\xff\xff\xff"
_size = struct.Struct(">i")


class GroupError(RuntimeError):
    pass


class Connection(asyncio.Protocol):
    """Requests in, responses out, in order: a connection to the coordinator."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._waiting: deque[tuple[int, int, asyncio.Future[Any]]] = deque()
        self._transport: asyncio.WriteTransport | None = None

    @classmethod
    async def open(cls, port: int) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(cls, "127.0.0.1", port)
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        for _, _, future in self._waiting:
            if not future.done():
                future.set_exception(GroupError("the broker closed the connection"))
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= 4:
            end = start + 4 + _size.unpack_from(buffer, start)[0]
            if end > len(buffer):
                break
            api_key, version, future = self._waiting.popleft()
            body = start + (9 if response_header_version(api_key, version) else 8)
            if not future.done():
                future.set_result(response_class(api_key).decode(bytes(buffer[body:end]), version))
            start = end
        del buffer[:start]

    async def ask(self, request: Message, version: int | None = None) -> Any:
        version = type(request).MAX_VERSION if version is None else version
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._transport is None or self._transport.is_closing():
            raise GroupError("the broker closed the connection")
        self._waiting.append((request.API_KEY, version, future))
        self._transport.write(encode_request(request.API_KEY, version, 1, "member", request.encode(version)))
        return await future

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


async def find_coordinator(port: int, group: str) -> None:
    """The first search creates `__consumer_offsets`; answers come once its partitions lead."""
    connection = await Connection.open(port)
    deadline = time.monotonic() + PATIENCE_S
    try:
        while True:
            answer = await connection.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4)
            code = answer.coordinators[0].error_code
            if code == 0:
                return
            if code not in _NOT_YET or time.monotonic() > deadline:
                raise GroupError(f"FindCoordinator: {ErrorCode(code).name}")
            await asyncio.sleep(RETRY_S)
    finally:
        connection.close()


class Member:
    def __init__(self, group: str, connection: Connection) -> None:
        self.group = group
        self.connection = connection
        self.member_id = ""
        self.generation = -1
        self.leads = False
        self._members: list[str] = []

    async def join(self) -> None:
        """Waits until the whole group has joined."""
        while True:
            protocol = JoinGroupRequestProtocol(name="range", metadata=_SUBSCRIPTION)
            request = JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=SESSION_MS,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[protocol],
            )
            answer = await self.connection.ask(request)
            code = answer.error_code
            if code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
            elif code in _NOT_YET:
                await asyncio.sleep(RETRY_S)
            elif code != 0:
                raise GroupError(f"JoinGroup: {ErrorCode(code).name}")
            else:
                self.member_id, self.generation = answer.member_id, answer.generation_id
                self.leads = answer.leader == self.member_id
                self._members = [member.member_id for member in answer.members]
                return

    async def sync(self) -> bool:
        """Whether the generation stood; False when the group began to rebalance again."""
        names = self._members if self.leads else []
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=name, assignment=_ASSIGNMENT) for name in names],
        )
        return self._stands("SyncGroup", (await self.connection.ask(request)).error_code)

    async def beat(self) -> bool:
        request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
        return self._stands("Heartbeat", (await self.connection.ask(request)).error_code)

    @staticmethod
    def _stands(what: str, code: int) -> bool:
        if code in _REJOIN:
            return False
        if code != 0:
            raise GroupError(f"{what}: {ErrorCode(code).name}")
        return True

    async def enter(self) -> None:
        """Joins and syncs until a generation stands."""
        while True:
            await self.join()
            if await self.sync():
                return

    async def follow(self) -> None:
        """Hears of the rebalance and goes along with it."""
        while await self.beat():
            pass
        await self.enter()

    async def commit(self, topic: str, offset: int) -> None:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        code = (await self.connection.ask(request, COMMIT_VERSION)).topics[0].partitions[0].error_code
        if code != 0:
            raise GroupError(f"OffsetCommit: {ErrorCode(code).name}")

    async def leave(self) -> None:
        request = LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(member_id=self.member_id)])
        await self.connection.ask(request)


async def form(group: str, port: int, count: int) -> list[Member]:
    """A group of `count` members, each with its own connection, all of one generation."""
    members = [Member(group, await Connection.open(port)) for _ in range(count)]
    entered: set[Member] = set()

    def together() -> bool:
        return len(entered) == count and len({member.generation for member in members}) == 1

    async def live(member: Member) -> None:
        while not together():
            if member not in entered:
                await member.enter()
                entered.add(member)
            await asyncio.sleep(BEAT_S)
            if not await member.beat():
                entered.discard(member)

    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(live(member) for member in members))
    return members


async def rebalance(members: Sequence[Member]) -> float:
    """The leader rejoins, everybody follows; seconds until all have their assignment."""
    leader = next(member for member in members if member.leads)
    begin = time.perf_counter()
    async with asyncio.timeout(PATIENCE_S):
        first = asyncio.ensure_future(leader.enter())
        await asyncio.sleep(0)  # its request is on its way before the others ask
        await asyncio.gather(first, *(member.follow() for member in members if member is not leader))
    return time.perf_counter() - begin


async def disband(members: Sequence[Member]) -> None:
    """Leaves in order: members that merely vanish would keep the broker busy with their expiry."""
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(member.leave() for member in members))
    for member in members:
        member.connection.close()
