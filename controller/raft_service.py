"""The quorum's RPCs as a controller serves them: bytes of the log and of snapshots around the core's answers."""

from __future__ import annotations

import os
from typing import Any, Final

from controller.checkpoint import SnapshotId
from controller.driver import RaftDriver
from controller.metadata_log import MetadataLog
from controller.raft.types import FetchAnswer, FetchSnapshotAnswer, PeerRequest
from controller.raft_answers import to_wire_answer
from controller.raft_requests import Refused, from_wire, refusal
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import FetchRequest
from protocol.messages.fetch_snapshot import FetchSnapshotRequest
from protocol.schema import Message
from storage.errors import OffsetOutOfRange, StorageError

MAX_FETCH_BYTES: Final = 8 << 20  # Kafka's limit of a fetch of the metadata log, and of a batch in it


class RaftService:
    def __init__(self, raft: RaftDriver, log: MetadataLog) -> None:
        self._raft = raft
        self._log = log

    async def serve(self, message: Message, listener: str) -> Message:
        """The response to one of the quorum's requests, whoever sent it. Leader addresses are those of ``listener``."""
        try:
            request = from_wire(message, self._log.node.cluster_id)
            answer = await self._raft.receive(request)
        except Refused as refused:
            return refused.response
        except ApiError as error:
            return refusal(message, error.code)
        if isinstance(answer, FetchAnswer) and answer.read_from is not None:
            assert isinstance(message, FetchRequest)
            return self._with_records(request, answer, message, listener)
        if isinstance(answer, FetchSnapshotAnswer) and answer.error is ErrorCode.NONE:
            assert isinstance(message, FetchSnapshotRequest)
            return self._with_snapshot(request, answer, message, listener)
        return to_wire_answer(request, answer, listener)

    def _with_records(self, request: PeerRequest, answer: FetchAnswer, message: FetchRequest, listener: str) -> Message:
        assert answer.read_from is not None
        try:
            records: Any = self._log.read(answer.read_from, min(max(message.max_bytes, 1), MAX_FETCH_BYTES))
        except (StorageError, OffsetOutOfRange):  # cut or moved since the answer was given: the follower asks again
            return refusal(message, ErrorCode.KAFKA_STORAGE_ERROR)
        return to_wire_answer(request, answer, listener, records)

    def _with_snapshot(
        self, request: PeerRequest, answer: FetchSnapshotAnswer, message: FetchSnapshotRequest, listener: str
    ) -> Message:
        path = os.path.join(self._log.directory, SnapshotId(*answer.snapshot_id).file_name)
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if not 0 <= answer.position < size:
                    out_of_range = answer._replace(error=ErrorCode.POSITION_OUT_OF_RANGE)
                    return to_wire_answer(request, out_of_range, listener)
                wanted = min(max(message.max_bytes, 1), MAX_FETCH_BYTES)
                piece = os.pread(file.fileno(), wanted, answer.position)
        except FileNotFoundError:
            return to_wire_answer(request, answer._replace(error=ErrorCode.SNAPSHOT_NOT_FOUND), listener)
        except OSError:
            return to_wire_answer(request, answer._replace(error=ErrorCode.KAFKA_STORAGE_ERROR), listener)
        return to_wire_answer(request, answer._replace(size=size), listener, piece)
