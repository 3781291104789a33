"""ElectLeaders, and the elections that nobody asks for: back to preferred leaders, and unclean ones where allowed."""

from __future__ import annotations

from typing import Final

from config.broker import BrokerConfig
from controller.image import NO_LEADER, MetadataImage, PartitionImage
from controller.leadership import Elections
from controller.outcome import Outcome
from controller.partition_change import Election, Target
from protocol.errors import ApiError, ErrorCode
from protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from protocol.schema import Message

PREFERRED: Final = 0
UNCLEAN: Final = 1
_ELECTIONS: Final = {PREFERRED: Election.PREFERRED, UNCLEAN: Election.UNCLEAN}

# Kafka's limit for one step of periodic work, so that it does not hold up requests; the rest follows at once.
MAX_ELECTIONS_PER_STEP: Final = 1_000


def elect_leaders(
    image: MetadataImage, request: ElectLeadersRequest, *, config: BrokerConfig
) -> Outcome[ElectLeadersResponse]:
    """Without a list of partitions, all of them; those that need no election are then left out of the answer."""
    election = _ELECTIONS.get(request.election_type)
    if election is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    elections = Elections(image, config)
    records: list[Message] = []
    results = []
    if request.topic_partitions is None:
        for topic in image.topics_by_name.values():
            answers = [_elect(image, elections, topic.name, index, election, records) for index in topic.partitions]
            needed = [answer for answer in answers if answer.error_code != ErrorCode.ELECTION_NOT_NEEDED]
            results.append(ReplicaElectionResult(topic=topic.name, partition_result=needed))
    else:
        for asked in request.topic_partitions:
            answers = [_elect(image, elections, asked.topic, index, election, records) for index in asked.partitions]
            results.append(ReplicaElectionResult(topic=asked.topic, partition_result=answers))
    return Outcome(records, ElectLeadersResponse(replica_election_results=results))


def _elect(
    image: MetadataImage, elections: Elections, name: str, index: int, election: Election, records: list[Message]
) -> PartitionResult:
    topic = image.topics_by_name.get(name)
    if topic is None:
        return _result(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(index)
    if partition is None:
        return _result(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    settled = has_preferred_leader(partition) if election is Election.PREFERRED else partition.leader != NO_LEADER
    if settled:
        return _result(index, ErrorCode.ELECTION_NOT_NEEDED)
    record = elections.change(topic, index, Target(election=election))
    if record is None:
        return _result(
            index,
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            if election is Election.PREFERRED
            else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        )
    records.append(record)
    return _result(index)


def _result(index: int, code: ErrorCode = ErrorCode.NONE, message: str | None = None) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=code, error_message=message)


def has_preferred_leader(partition: PartitionImage) -> bool:
    return partition.leader == (partition.replicas[0] if partition.replicas else NO_LEADER)


def balance_leaders(
    image: MetadataImage, *, config: BrokerConfig, limit: int = MAX_ELECTIONS_PER_STEP
) -> Outcome[bool]:
    """auto.leader.rebalance.enable, every leader.imbalance.check.interval.seconds: leadership goes back to the first
    replica wherever that is in sync. The answer says whether there may be more to do at once."""
    elections = Elections(image, config)
    records: list[Message] = []
    for topic in image.topics_by_name.values():
        for index, partition in topic.partitions.items():
            if len(records) >= limit:
                return Outcome(records, True)
            if not has_preferred_leader(partition):
                record = elections.change(topic, index, Target(election=Election.PREFERRED))
                if record is not None:
                    records.append(record)
    return Outcome(records, len(records) >= limit)


def elect_unclean_leaders(
    image: MetadataImage, *, config: BrokerConfig, limit: int = MAX_ELECTIONS_PER_STEP
) -> Outcome[bool]:
    """Every unclean.leader.election.interval.ms: partitions without leader whose topic would rather lose records than
    wait. Needed because that setting may be turned on while nothing else happens."""
    elections = Elections(image, config)
    records: list[Message] = []
    for topic in image.topics_by_name.values():
        if not elections.unclean_allowed(topic):
            continue
        for index, partition in topic.partitions.items():
            if len(records) >= limit:
                return Outcome(records, True)
            if partition.leader == NO_LEADER:
                record = elections.change(topic, index, Target(election=Election.UNCLEAN))
                if record is not None:
                    records.append(record)
    return Outcome(records, len(records) >= limit)
