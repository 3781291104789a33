"""Which replica a consumer should read from (KIP-392): one in its own rack, if any has what it asks for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.replication.leader import LeaderState

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def nearest_replica(
    leadership: LeaderState, leader: int, racks: Mapping[int, str | None], rack: str, fetch_offset: int
) -> int:
    """`racks`: those of the brokers that live. The leader where it is as near, or nobody else will do; otherwise the
    follower in sync that is furthest, and of several the one that was level last."""
    if racks.get(leader) == rack:
        return leader
    near = [
        follower
        for follower in leadership.followers.values()
        if follower.broker_id in leadership.isr
        and racks.get(follower.broker_id) == rack
        and follower.log_start_offset <= fetch_offset <= follower.log_end_offset
    ]
    if not near:
        return leader
    return max(near, key=lambda follower: (follower.log_end_offset, follower.last_caught_up_ms)).broker_id
