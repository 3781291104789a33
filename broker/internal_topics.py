"""Topics that belong to the coordinators. Clients read them; only an administrator's client writes them."""

from __future__ import annotations

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"

INTERNAL_TOPICS = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC))

# The client id by which Kafka's own tools may repair an internal topic.
ADMIN_CLIENT_ID = "__admin_client"


def is_internal(topic: str) -> bool:
    return topic in INTERNAL_TOPICS


def is_writable_by(topic: str, client_id: str | None) -> bool:
    return topic not in INTERNAL_TOPICS or client_id == ADMIN_CLIENT_ID
