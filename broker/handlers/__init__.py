"""One file per API, in folders by what it is about: data, group, topic, config, cluster, quorum.

A handler keeps one order: authorise, validate, call the domain (controller, replicas, image), shape the response.
It touches no file and keeps no state. It takes `ctx.broker.image` once and uses that one image throughout, so an
answer never mixes two states of the cluster.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

MODULES: Final = (
    "cluster.alter_reassignments",
    "cluster.alter_replica_log_dirs",
    "cluster.api_versions",
    "cluster.describe_cluster",
    "cluster.describe_log_dirs",
    "cluster.describe_quorum",
    "cluster.elect_leaders",
    "cluster.find_coordinator",
    "cluster.list_reassignments",
    "cluster.unregister_broker",
    "cluster.update_features",
    "config.alter",
    "config.describe",
    "config.incremental_alter",
    "config.list_resources",
    "data.delete_records",
    "data.describe_producers",
    "data.fetch",
    "data.init_producer_id",
    "data.list_offsets",
    "data.offset_for_leader_epoch",
    "data.produce",
    "group.consumer_describe",
    "group.consumer_heartbeat",
    "group.delete",
    "group.describe",
    "group.heartbeat",
    "group.join",
    "group.leave",
    "group.list",
    "group.offset_commit",
    "group.offset_delete",
    "group.offset_fetch",
    "group.sync",
    "quorum.add_raft_voter",
    "quorum.allocate_producer_ids",
    "quorum.alter_configs",
    "quorum.alter_partition",
    "quorum.assign_replicas_to_dirs",
    "quorum.begin_quorum_epoch",
    "quorum.broker_heartbeat",
    "quorum.broker_registration",
    "quorum.controller_registration",
    "quorum.end_quorum_epoch",
    "quorum.envelope",
    "quorum.fetch",
    "quorum.fetch_snapshot",
    "quorum.incremental_alter_configs",
    "quorum.remove_raft_voter",
    "quorum.update_raft_voter",
    "quorum.vote",
    "topic.create",
    "topic.create_partitions",
    "topic.delete",
    "topic.describe_partitions",
    "topic.metadata",
)


def register_all() -> None:
    """Imports every handler, which enters it into the tables of `broker.api`; ApiVersions lists what is there."""
    for module in MODULES:
        import_module(f"{__name__}.{module}")
