"""The file ``quorum-state``: the epoch this voter has seen, and its vote in it.

It is written before anything of a new epoch goes into the log or over the wire: a voter that forgot its epoch could
vote twice in it. JSON, data version 1 as Kafka 4.3 writes it; version 0 (with cluster id and static voters) is read.
"""

from __future__ import annotations

import json
import os
from typing import Any, Final, NamedTuple

from controller.delta import MetadataError
from protocol.uuids import Uuid
from storage.atomic_file import read_text, write_atomically
from storage.disk import DISK, Disk

FILE_NAME: Final = "quorum-state"
NOBODY: Final = -1


class QuorumState(NamedTuple):
    leader_id: int = NOBODY
    leader_epoch: int = 0
    voted_id: int = NOBODY
    voted_directory_id: Uuid = Uuid.ZERO


def write_quorum_state(directory: str, state: QuorumState, disk: Disk = DISK) -> None:
    text = json.dumps(
        {
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": state.voted_id,
            "votedDirectoryId": str(state.voted_directory_id),
            "data_version": 1,
        },
        separators=(",", ":"),
    )
    write_atomically(os.path.join(directory, FILE_NAME), text.encode(), disk)


def read_quorum_state(directory: str) -> QuorumState:
    """The state, or that of a node that never took part when there is no file."""
    path = os.path.join(directory, FILE_NAME)
    text = read_text(path)
    if text is None:
        return QuorumState()
    try:
        fields: dict[str, Any] = json.loads(text)
        version = fields["data_version"]
        if version not in (0, 1):
            raise MetadataError(f"{path} has data_version {version}; this node reads 0 and 1")
        voted_directory = fields.get("votedDirectoryId")
        return QuorumState(
            leader_id=int(fields["leaderId"]),
            leader_epoch=int(fields["leaderEpoch"]),
            voted_id=int(fields["votedId"]),
            voted_directory_id=Uuid.parse(voted_directory) if voted_directory else Uuid.ZERO,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MetadataError(
            f"{path} cannot be read ({error}). It holds the epochs this voter has voted in, so it is not replaced "
            "by a guess: restore it, or remove the whole log directory if other voters have the metadata"
        ) from None
