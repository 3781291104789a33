"""Which of the group protocols the cluster has switched on."""

from __future__ import annotations

from broker.api import RequestContext

GROUP_VERSION = "group.version"
FIRST_LEVEL_WITH_CONSUMER_PROTOCOL = 1


def is_consumer_protocol_enabled(ctx: RequestContext) -> bool:
    """KIP-848 comes with level 1 of the feature group.version, which a new cluster is formatted with, unless
    group.coordinator.rebalance.protocols leaves it out."""
    level = ctx.broker.image.features.finalized.get(GROUP_VERSION, 0)
    protocols = ctx.broker.config.group_coordinator_rebalance_protocols
    return level >= FIRST_LEVEL_WITH_CONSUMER_PROTOCOL and "consumer" in protocols
