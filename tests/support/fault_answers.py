"""Which errors Kafka's Java clients live with, by request. Any other they throw at the application, so a broker that
answers with it in a fault test has failed, however politely.

Of an error that is `retriable` in Kafka's sense the producer, the admin client and whoever looks for a coordinator
repeat the request. A consumer has lists of its own, and takes whatever is not in them for a broken broker.
"""

from __future__ import annotations

from protocol.errors import ErrorCode

RETRIABLE = frozenset(code for code in ErrorCode if code.retriable)

PRODUCE = RETRIABLE | {
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,  # stored, nobody knows where: success
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
}

FETCH = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
FETCH_FROM_FOLLOWER = FETCH | {ErrorCode.OFFSET_OUT_OF_RANGE}
"""Then the leader is asked. Of the leader it would mean that records are gone."""

COORDINATOR_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_LOADING = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
_THROWN_OUT = frozenset({ErrorCode.UNKNOWN_MEMBER_ID})
_REJOIN = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION})

JOIN_GROUP = (
    COORDINATOR_MOVED | _LOADING | _THROWN_OUT | {ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS}
)
SYNC_GROUP = COORDINATOR_MOVED | _THROWN_OUT | _REJOIN
HEARTBEAT = COORDINATOR_MOVED | _THROWN_OUT | _REJOIN
LEAVE_GROUP = COORDINATOR_MOVED | _LOADING | _THROWN_OUT
CONSUMER_HEARTBEAT = COORDINATOR_MOVED | _LOADING | _THROWN_OUT | {ErrorCode.FENCED_MEMBER_EPOCH}
OFFSET_COMMIT = (
    COORDINATOR_MOVED
    | _LOADING
    | _THROWN_OUT
    | _REJOIN
    | {ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)
OFFSET_FETCH = (
    COORDINATOR_MOVED | _LOADING | _THROWN_OUT | {ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNSTABLE_OFFSET_COMMIT}
)
