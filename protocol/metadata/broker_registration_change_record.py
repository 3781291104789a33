"""BrokerRegistrationChangeRecord: a record of the metadata log (type 17)."""

from __future__ import annotations

from protocol.schema import Message, array, int8, int32, int64, uuid
from protocol.uuids import Uuid


class BrokerRegistrationChangeRecord(Message, key=17, versions="0-3", flexible="0+", strict=True):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")
    fenced: int = int8("0+", tag=0, tagged="0+")
    in_controlled_shutdown: int = int8("1+", tag=1, tagged="1+")
    log_dirs: list[Uuid] = array(uuid, "2+", tag=2, tagged="2+")
    cordoned_log_dirs: list[Uuid] | None = array(uuid, "3+", nullable="3+", default=None, tag=3, tagged="3+")
