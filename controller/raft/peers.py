"""Requests under way: at most one for each peer, a pause after a failure, and answers matched to what was asked.

An answer counts only if it is to the request under way: a late or doubled one could speak of a log or an epoch that
is no longer ours. A change of role forgets all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from controller.raft.types import PeerRequest, Settings


@dataclass(slots=True)
class _Peer:
    request: PeerRequest | None = None
    sent_ms: int = 0
    resume_ms: int = 0


class Peers:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._peers: dict[int, _Peer] = {}

    def when_ready(self, peer: int, now_ms: int) -> int:
        """From when on a request may be sent. One that timed out is given up here."""
        state = self._peers.get(peer)
        if state is None:
            return now_ms
        if state.request is not None:
            times_out_ms = state.sent_ms + self._settings.request_timeout_ms
            if now_ms < times_out_ms:
                return times_out_ms
            state.request = None
        return max(now_ms, state.resume_ms)

    def is_resting(self, peer: int, now_ms: int) -> bool:
        """Whether the last request to it failed, or got no answer in time."""
        state = self._peers.get(peer)
        if state is None:
            return False
        if state.request is not None:
            return now_ms >= state.sent_ms + self._settings.request_timeout_ms
        return now_ms < state.resume_ms

    @property
    def is_idle(self) -> bool:
        return all(state.request is None for state in self._peers.values())

    def in_flight(self, peer: int) -> PeerRequest | None:
        state = self._peers.get(peer)
        return state.request if state is not None else None

    def busy_until(self, now_ms: int) -> int | None:
        """When the last request under way times out, None if there is none."""
        times = [
            state.sent_ms + self._settings.request_timeout_ms
            for state in self._peers.values()
            if state.request is not None
        ]
        running = [time for time in times if time > now_ms]
        return max(running) if running else None

    def sent(self, peer: int, request: PeerRequest, now_ms: int) -> None:
        state = self._peers.setdefault(peer, _Peer())
        state.request, state.sent_ms = request, now_ms

    def settle(self, peer: int, request: PeerRequest) -> bool:
        """The request is over; False if it is not the one under way. The object counts, not its value: an answer to
        an equal request that was given up would otherwise start the next one early, for ever."""
        state = self._peers.get(peer)
        if state is None or state.request is not request:
            return False
        state.request = None
        state.resume_ms = 0
        return True

    def rest(self, peer: int, now_ms: int) -> None:
        self._peers.setdefault(peer, _Peer()).resume_ms = now_ms + self._settings.retry_backoff_ms

    def reset(self) -> None:
        self._peers.clear()
