"""A follower's half of an incremental fetch session (KIP-227): which partitions the next request has to name.

Pure. The leader remembers what was asked last; the request names what differs. A session that the leader has lost is
begun anew with a full request.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0

K = TypeVar("K", bound=Hashable)
P = TypeVar("P")


class SessionRequest(NamedTuple, Generic[K, P]):
    session_id: int
    epoch: int
    changed: dict[K, P]
    forgotten: list[K]

    @property
    def is_full(self) -> bool:
        return self.epoch == INITIAL_EPOCH


class FetchSessionClient(Generic[K, P]):
    """`P` is what is asked of a partition; it is sent again when it differs from what was sent last."""

    __slots__ = ("_epoch", "_sent", "_session_id")

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._sent: dict[K, P] = {}

    def request(self, wanted: Mapping[K, P]) -> SessionRequest[K, P]:
        """A full request names all partitions, an incremental one those that are new, changed or gone."""
        if self._epoch == INITIAL_EPOCH:
            self._sent = dict(wanted)
            return SessionRequest(self._session_id, INITIAL_EPOCH, dict(wanted), [])
        sent = self._sent
        changed = {key: position for key, position in wanted.items() if sent.get(key) != position}
        sent.update(changed)  # now all that is wanted, and perhaps more
        forgotten = [key for key in sent if key not in wanted] if len(sent) > len(wanted) else []
        for key in forgotten:
            del sent[key]
        return SessionRequest(self._session_id, self._epoch, changed, forgotten)

    def on_response(self, session_id: int, has_error: bool) -> None:
        """An error of the whole response, or no session: the next request is a full one."""
        if has_error or session_id == NO_SESSION:
            self.reset(NO_SESSION if not has_error else self._session_id)
            return
        self._session_id = session_id
        self._epoch = 1 if self._epoch == 0x7FFFFFFF else self._epoch + 1

    def reset(self, session_id: int | None = None) -> None:
        """After a lost connection: the leader may or may not have seen the last request."""
        self._session_id = self._session_id if session_id is None else session_id
        self._epoch = INITIAL_EPOCH
        self._sent = {}
