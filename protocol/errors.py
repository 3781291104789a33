"""Kafka's error codes, and the exceptions that separate a peer's fault from our own.

Three exception types, because they end differently: an `ApiError` becomes an error code inside a response,
a `DecodeError` closes the connection (the stream can no longer be trusted), an `EncodeError` is our own bug.
"""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """Every error code of Kafka 4.3.1. The numbers are the wire's; the names are what clients print."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133

    @property
    def retriable(self) -> bool:
        """Whether Kafka's clients repeat a request that failed with this code."""
        return self in _RETRIABLE

    @property
    def description(self) -> str:
        """One line for our log; the name where there is nothing to add."""
        return _DESCRIPTIONS.get(self, self.name)


_RETRIABLE: frozenset[ErrorCode] = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)

_DESCRIPTIONS: dict[ErrorCode, str] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "the broker failed unexpectedly; its log has the details",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset lies outside what this partition holds",
    ErrorCode.CORRUPT_MESSAGE: "the record batch is damaged or its checksum is wrong",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "this broker has no such topic or partition",
    ErrorCode.INVALID_FETCH_SIZE: "the fetch size is not usable",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader at the moment",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "this broker does not lead (or does not hold) the partition",
    ErrorCode.REQUEST_TIMED_OUT: "the request was not completed within its timeout",
    ErrorCode.BROKER_NOT_AVAILABLE: "the broker cannot be reached",
    ErrorCode.REPLICA_NOT_AVAILABLE: "this broker has no replica of the partition",
    ErrorCode.MESSAGE_TOO_LARGE: "the record batch exceeds the size limit of the topic or broker",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the metadata string of the committed offset is too long",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still loading its state",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "no coordinator is available",
    ErrorCode.NOT_COORDINATOR: "another broker is the coordinator",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the topic name is illegal or reserved for another use",
    ErrorCode.RECORD_LIST_TOO_LARGE: "the records do not fit into one log segment",
    ErrorCode.NOT_ENOUGH_REPLICAS: "too few replicas are in sync to accept the write",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "the write was stored but too few replicas are in sync",
    ErrorCode.INVALID_REQUIRED_ACKS: "acks must be -1, 0 or 1",
    ErrorCode.ILLEGAL_GENERATION: "the generation is not the group's current one",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "the member shares no protocol with the rest of the group",
    ErrorCode.INVALID_GROUP_ID: "the group id is not usable",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has no such member",
    ErrorCode.INVALID_SESSION_TIMEOUT: "the session timeout is outside the range the broker allows",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group is rebalancing; the member must rejoin",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not authorized for the topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not authorized for the group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not authorized for this operation on the cluster",
    ErrorCode.INVALID_TIMESTAMP: "a record's timestamp is too far from the broker's clock",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "the SASL mechanism is not enabled",
    ErrorCode.ILLEGAL_SASL_STATE: "the request does not fit the state of the authentication",
    ErrorCode.UNSUPPORTED_VERSION: "this version of the API is not supported",
    ErrorCode.TOPIC_ALREADY_EXISTS: "a topic of that name exists",
    ErrorCode.INVALID_PARTITIONS: "the number of partitions is not usable",
    ErrorCode.INVALID_REPLICATION_FACTOR: "the replication factor is below 1 or above the number of brokers",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "the replica assignment is not usable",
    ErrorCode.INVALID_CONFIG: "a configuration name or value is not valid",
    ErrorCode.NOT_CONTROLLER: "this node is not the active controller",
    ErrorCode.INVALID_REQUEST: "the request contradicts itself or the protocol",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "the record format does not allow this request",
    ErrorCode.POLICY_VIOLATION: "the request violates a configured policy",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "the batch does not continue the producer's sequence",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "the batch repeats a sequence number stored earlier",
    ErrorCode.INVALID_PRODUCER_EPOCH: "the producer's epoch is older than the one the broker knows",
    ErrorCode.INVALID_TXN_STATE: "the transaction is not in a state that allows this operation",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the producer id does not belong to the transactional id",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "the transaction timeout exceeds the broker's maximum",
    ErrorCode.CONCURRENT_TRANSACTIONS: "the previous operation on this transaction is not finished",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "not authorized for the transactional id",
    ErrorCode.KAFKA_STORAGE_ERROR: "the log directory of the partition has failed",
    ErrorCode.LOG_DIR_NOT_FOUND: "the broker has no such log directory",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "authentication failed",
    ErrorCode.UNKNOWN_PRODUCER_ID: "the partition has no state for this producer id",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "the partition is being reassigned",
    ErrorCode.NON_EMPTY_GROUP: "the group still has members",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: "there is no such fetch session",
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: "the fetch session expects another epoch",
    ErrorCode.LISTENER_NOT_FOUND: "the leader has no listener of that name",
    ErrorCode.TOPIC_DELETION_DISABLED: "delete.topic.enable is false",
    ErrorCode.FENCED_LEADER_EPOCH: "the leader epoch of the request is too old",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "the leader epoch of the request is not known here yet",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "the compression codec cannot be used with this request",
    ErrorCode.STALE_BROKER_EPOCH: "the broker has registered again under a newer epoch",
    ErrorCode.OFFSET_NOT_AVAILABLE: "the new leader's high watermark is not certain yet",
    ErrorCode.MEMBER_ID_REQUIRED: "the member must rejoin with the member id it was given",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group is full",
    ErrorCode.FENCED_INSTANCE_ID: "another member uses this group.instance.id",
    ErrorCode.INVALID_RECORD: "the broker refuses a record of the batch",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "offsets of an open transaction are pending",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "the quota for this kind of change is used up",
    ErrorCode.PRODUCER_FENCED: "a newer producer has taken over the transactional id",
    ErrorCode.RESOURCE_NOT_FOUND: "there is no such resource",
    ErrorCode.DUPLICATE_RESOURCE: "the request names the same resource twice",
    ErrorCode.INCONSISTENT_VOTER_SET: "the voter sets of the two nodes differ",
    ErrorCode.SNAPSHOT_NOT_FOUND: "there is no such snapshot",
    ErrorCode.POSITION_OUT_OF_RANGE: "the position lies outside the snapshot",
    ErrorCode.UNKNOWN_TOPIC_ID: "this broker has no topic of that id",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "another broker is registered under this id",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "no broker is registered under this id",
    ErrorCode.INCONSISTENT_TOPIC_ID: "the log belongs to another topic id",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "the request belongs to another cluster",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "there is no such transactional id",
    ErrorCode.INELIGIBLE_REPLICA: "a replica of the new ISR may not join it",
    ErrorCode.FENCED_MEMBER_EPOCH: "the member is fenced and must rejoin",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "the group coordinator has no such assignor",
    ErrorCode.STALE_MEMBER_EPOCH: "the member epoch is out of date",
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: "the request is meant for the other kind of endpoint",
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: "this kind of endpoint is not supported",
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID: "the telemetry subscription is unknown or out of date",
    ErrorCode.TELEMETRY_TOO_LARGE: "the pushed telemetry exceeds the limit",
    ErrorCode.TRANSACTION_ABORTABLE: "the transaction failed and must be aborted",
    ErrorCode.SHARE_SESSION_NOT_FOUND: "there is no such share session",
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: "the share session expects another epoch",
    ErrorCode.INVALID_VOTER_KEY: "the voter's directory id is not this replica's",
    ErrorCode.DUPLICATE_VOTER: "the voter is in the voter set already",
    ErrorCode.VOTER_NOT_FOUND: "the voter is not in the voter set",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the regular expression is not valid",
    ErrorCode.REBOOTSTRAP_REQUIRED: "the client must start again from its bootstrap servers",
    ErrorCode.SHARE_SESSION_LIMIT_REACHED: "the broker has no room for another share session",
}


class ApiError(Exception):
    """A request, or a part of one, that earns an error code; handlers turn it into a response.

    `message` is what the client shows its user, so it names the offending thing. It stays empty when there is
    nothing to add: a response then carries null and the client falls back to its own text for the code.
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        self.code = code
        self.message = message
        super().__init__(code, message)

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message or self.code.description}"


class DecodeError(Exception):
    """The peer (or a file) holds bytes that do not follow the protocol."""


class EncodeError(Exception):
    """We tried to write something that the protocol cannot express: our own bug, never the peer's."""
