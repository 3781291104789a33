"""Topics, settings and descriptions asked for over raw connections, of Barnabas and of Apache Kafka 4.3.1.

Equal codes and equal texts: administrators read the texts. A text that a client has itself for the code may be left
out. Ids, addresses and paths aside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest
from py4j.java_gateway import JavaGateway
from support.anchor import AnchorKafka
from support.broker_process import BrokerProcess
from support.scenario import Server
from support.talk import Talk

from protocol.messages import alter_configs as legacy
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.list_config_resources import ListConfigResourcesRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.uuids import Uuid

pytestmark = pytest.mark.stock

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
NO_TOPIC = Uuid(b"\7" * 16)
TIMEOUT_MS = 10_000


def creation(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    *,
    assigned: dict[int, list[int]] | None = None,
    configs: Sequence[tuple[str, str | None]] = (),
) -> CreatableTopic:
    assignments = [CreatableReplicaAssignment(partition_index=p, broker_ids=b) for p, b in (assigned or {}).items()]
    entries = [CreatableTopicConfig(name=key, value=value) for key, value in configs]
    return CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas, assignments=assignments, configs=entries
    )


def creating(*topics: CreatableTopic, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), timeout_ms=TIMEOUT_MS, validate_only=validate_only)


CREATIONS = {
    "dots": [creation(".")],
    "empty": [creation("")],
    "slash": [creation("creations/slash")],
    "long": [creation("x" * 250)],
    "not ascii": [creation("créations")],
    "exists": [creation("creations")],
    "collides": [creation("creations-with-dot"), creation("creations.with_dot"), creation("creations_with_dot")],
    "twice": [creation("creations-two"), creation("creations-two", 3), creation("creations-three")],
    "no partitions": [creation("creations-none", 0)],
    "-2 partitions": [creation("creations-none", -2)],
    "default partitions": [creation("creations-default", -1, -1)],
    "no replicas": [creation("creations-none", 1, 0)],
    "-2 replicas": [creation("creations-none", 1, -2)],
    "two replicas": [creation("creations-none", 1, 2)],
    "too many partitions": [creation("creations-none", 20_000)],
    "far too many partitions": [creation("creations-none", 2_000_000_000)],
    "assigned": [creation("creations-assigned", -1, -1, assigned={0: [1], 1: [1]})],
    "assigned with count": [creation("creations-none", 1, -1, assigned={0: [1]})],
    "assigned with factor": [creation("creations-none", -1, 1, assigned={0: [1]})],
    "assigned to nobody": [creation("creations-none", -1, -1, assigned={0: []})],
    "assigned to a stranger": [creation("creations-none", -1, -1, assigned={0: [9]})],
    "assigned twice": [creation("creations-none", -1, -1, assigned={0: [1, 1]})],
    "assigned with a gap": [creation("creations-none", -1, -1, assigned={0: [1], 2: [1]})],
    "assigned unevenly": [creation("creations-none", -1, -1, assigned={0: [1], 1: [1, 2]})],
    "unknown setting": [creation("creations-none", configs=[("no.such", "1")])],
    "null setting": [creation("creations-none", configs=[("retention.ms", None)])],
    "empty setting": [creation("creations-none", configs=[("cleanup.policy", "")])],
    "setting twice": [creation("creations-none", configs=[("retention.ms", "1"), ("retention.ms", "2")])],
    "good settings": [creation("creations-good", configs=[("retention.ms", " 77 "), ("cleanup.policy", "compact")])],
}

# One value that is wrong for each setting of a topic, or that its range ends before.
BAD_VALUES = [
    ("cleanup.policy", "shred"), ("cleanup.policy", "delete,delete"), ("compression.type", "brotli"),
    ("compression.gzip.level", "0"), ("compression.gzip.level", "10"), ("compression.lz4.level", "18"),
    ("compression.zstd.level", "23"), ("delete.retention.ms", "-1"), ("file.delete.delay.ms", "-1"),
    ("flush.messages", "0"), ("flush.ms", "-1"), ("index.interval.bytes", "-1"),
    ("max.compaction.lag.ms", "0"), ("max.message.bytes", "-1"), ("message.timestamp.type", "Never"),
    ("message.timestamp.before.max.ms", "-1"), ("message.timestamp.after.max.ms", "-1"),
    ("min.cleanable.dirty.ratio", "1.5"), ("min.cleanable.dirty.ratio", "much"), ("min.compaction.lag.ms", "-1"),
    ("min.insync.replicas", "0"), ("preallocate", "maybe"), ("retention.bytes", "9223372036854775808"),
    ("retention.ms", "-2"), ("retention.ms", "soon"), ("segment.bytes", "1048575"), ("segment.bytes", "1e9"),
    ("segment.index.bytes", "3"), ("segment.jitter.ms", "-1"), ("segment.ms", "0"),
    ("unclean.leader.election.enable", "yes"), ("leader.replication.throttled.replicas", "everything"),
    ("local.retention.ms", "-3"), ("local.retention.bytes", "-3"), ("remote.storage.enable", "true"),
    ("errors.deadletterqueue.topic.name", "x"),
]  # fmt: skip


def create(talk: Talk, label: str, request: CreateTopicsRequest) -> None:
    answer = talk.wire.ask(request)
    answer.topics.sort(key=lambda topic: str(topic.name))
    for topic in answer.topics:
        if topic.topic_id != Uuid.ZERO:
            talk.call("new", topic.topic_id)
    talk.note(label, answer)


def creations(talk: Talk) -> None:
    create(talk, "first", creating(creation("creations")))
    for label, topics in CREATIONS.items():
        for validate_only in (True, False):
            create(talk, label, creating(*topics, validate_only=validate_only))
    for version in range(2, 7):
        talk.ask("exists", creating(creation("creations")), version)
        talk.ask("no partitions", creating(creation("creations-none", 0)), version)


def settings_of_topics(talk: Talk) -> None:
    talk.create_topic("settled")
    for name, value in BAD_VALUES:
        wrong = creation("settled-none", configs=[(name, value)])
        create(talk, f"{name}={value}", creating(wrong, validate_only=True))
        talk.ask(f"{name}={value}", changing(TOPIC, "settled", (name, SET, value)))


def partitions_added(talk: Talk) -> None:
    talk.create_topic("grown")

    def grown(label: str, *topics: CreatePartitionsTopic, validate_only: bool = False) -> None:
        answer = talk.wire.ask(
            CreatePartitionsRequest(topics=list(topics), timeout_ms=TIMEOUT_MS, validate_only=validate_only), 3
        )
        answer.results.sort(key=lambda result: str(result.name))
        talk.note(label, answer)

    def to(count: int, *assigned: list[int], name: str = "grown") -> CreatePartitionsTopic:
        assignments = [CreatePartitionsAssignment(broker_ids=ids) for ids in assigned] or None
        return CreatePartitionsTopic(name=name, count=count, assignments=assignments)

    for count in (-1, 0, 1, 3):
        grown(f"to {count}", to(count), validate_only=count == 3)
    grown("to 2", to(2))
    grown("to 2 again", to(2))
    grown("assigned", to(3, [1]))
    grown("to a stranger", to(4, [9]))
    grown("to nobody", to(4, []))
    grown("too few", to(6, [1]))
    grown("too many", to(4, [1], [1]))
    grown("another factor", to(4, [1, 2]))
    grown("unknown", to(3, name="grown-none"), to(5))
    grown("twice", to(6), to(7))
    grown("illegal", to(6, name="grown/illegal"))
    grown("internal", to(1, name="__consumer_offsets"))


def deletions(talk: Talk) -> None:
    ids = [talk.create_topic(f"deleted-{number}") for number in range(5)]

    def deleted(label: str, *topics: DeleteTopicState, version: int = 6) -> None:
        request = DeleteTopicsRequest(topics=list(topics), timeout_ms=TIMEOUT_MS)
        if version < 6:
            request = DeleteTopicsRequest(topic_names=[topic.name for topic in topics], timeout_ms=TIMEOUT_MS)
        answer = talk.wire.ask(request, version)
        answer.responses.sort(key=lambda one: (str(one.name), str(one.topic_id)))
        talk.note(label, answer)

    deleted("by name", DeleteTopicState(name="deleted-0"))
    deleted("again", DeleteTopicState(name="deleted-0"))
    deleted("by id", DeleteTopicState(name=None, topic_id=ids[1]))
    deleted("again by id", DeleteTopicState(name=None, topic_id=ids[1]))
    deleted("both", DeleteTopicState(name="deleted-2", topic_id=ids[2]))
    deleted("neither", DeleteTopicState(name=None))
    deleted("unknown id", DeleteTopicState(name=None, topic_id=NO_TOPIC))
    deleted("twice", DeleteTopicState(name="deleted-2"), DeleteTopicState(name="deleted-2"))
    deleted("name and its id", DeleteTopicState(name="deleted-2"), DeleteTopicState(name=None, topic_id=ids[2]))
    deleted("illegal", DeleteTopicState(name="deleted/illegal"), DeleteTopicState(name=""))
    for version in range(1, 6):
        deleted("old", DeleteTopicState(name="deleted-3"), version=version)
    deleted("some", DeleteTopicState(name="deleted-4"), DeleteTopicState(name="deleted-none"), version=5)


Entry = tuple[str, int, str | None]


def changing(kind: int, name: str, *entries: Entry, validate_only: bool = False) -> IncrementalAlterConfigsRequest:
    configs = [AlterableConfig(name=key, config_operation=how, value=value) for key, how, value in entries]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)


def replacing(kind: int, name: str, *entries: tuple[str, str | None]) -> legacy.AlterConfigsRequest:
    configs = [legacy.AlterableConfig(name=key, value=value) for key, value in entries]
    resource = legacy.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return legacy.AlterConfigsRequest(resources=[resource])


def config_changes(talk: Talk) -> None:
    talk.create_topic("changed")

    def changed(label: str, kind: int, name: str, *entries: Entry) -> None:
        talk.ask(label, changing(kind, name, *entries, validate_only=True))
        talk.ask(label, changing(kind, name, *entries))

    policy = "cleanup.policy"
    changed("set", TOPIC, "changed", ("retention.ms", SET, "5000"), (policy, SET, "compact"))
    changed("append", TOPIC, "changed", (policy, APPEND, "delete"))
    changed("append again", TOPIC, "changed", (policy, APPEND, "delete"))
    changed("subtract", TOPIC, "changed", (policy, SUBTRACT, "compact"))
    changed("subtract what is not there", TOPIC, "changed", (policy, SUBTRACT, "compact"))
    changed("subtract all", TOPIC, "changed", (policy, SUBTRACT, "delete"))
    changed("append nonsense", TOPIC, "changed", (policy, APPEND, "shred"))
    changed("append to a number", TOPIC, "changed", ("retention.ms", APPEND, "7"))
    changed("delete", TOPIC, "changed", ("retention.ms", DELETE, None))
    changed("delete what is not set", TOPIC, "changed", ("flush.ms", DELETE, None))
    changed("delete unknown", TOPIC, "changed", ("no.such", DELETE, None))
    changed("null", TOPIC, "changed", ("retention.ms", SET, None), ("flush.ms", SET, None))
    changed("twice", TOPIC, "changed", ("retention.ms", SET, "1"), ("retention.ms", DELETE, None))
    changed("one is wrong", TOPIC, "changed", ("retention.ms", SET, "1"), ("flush.ms", SET, "x"))
    changed("nothing", TOPIC, "changed")
    changed("unknown topic", TOPIC, "changed-none", ("retention.ms", SET, "1"))
    changed("unknown topic and setting", TOPIC, "changed-none", ("no.such", SET, "1"))
    changed("illegal topic", TOPIC, "changed/illegal", ("retention.ms", SET, "1"))
    changed("no topic", TOPIC, "", ("retention.ms", SET, "1"))
    changed("unknown kind", 3, "changed", ("retention.ms", SET, "1"))
    changed("unknown kind and null", 3, "changed", ("retention.ms", SET, None))
    changed("broker of another id", BROKER, "77", ("log.retention.ms", SET, "1"))
    changed("broker without number", BROKER, "first", ("log.retention.ms", SET, "1"))
    changed("read-only", BROKER, "1", ("num.partitions.none", SET, "1"), ("node.id", SET, "4"))
    changed("per broker", BROKER, "", ("listeners", SET, "PLAINTEXT://:1"))
    changed("wrong value", BROKER, "", ("log.retention.ms", SET, "soon"))
    for rate in ("leader.replication.throttled.rate", "follower.replication.throttled.rate"):
        for value in ("soon", "-1", "9223372036854775808"):
            changed(f"{rate}={value}", BROKER, "1", (rate, SET, value))
            changed(f"{rate}={value}", BROKER, "", (rate, SET, value))
        changed(rate, BROKER, "1", (rate, SET, "9223372036854775807"))
        changed(rate, BROKER, "", (rate, SET, "9223372036854775806"))
        changed(f"no {rate}", BROKER, "1", (rate, DELETE, None))
        changed(f"no {rate}", BROKER, "", (rate, DELETE, None))
    changed("no group", GROUP, "", ("consumer.session.timeout.ms", SET, "1"))
    same = AlterConfigsResource(resource_type=TOPIC, resource_name="changed", configs=[])
    talk.ask("resource twice", IncrementalAlterConfigsRequest(resources=[same, same]))
    for version in (0, 1, 2):
        talk.ask("replace", replacing(TOPIC, "changed", ("flush.ms", "9"), ("retention.ms", "5")), version)
    talk.ask("replace by nothing", replacing(TOPIC, "changed"))
    talk.ask("replace with nonsense", replacing(TOPIC, "changed", ("flush.ms", "x")))
    talk.ask("replace with null", replacing(TOPIC, "changed", ("flush.ms", None)))
    talk.ask("replace unknown", replacing(TOPIC, "changed-none", ("flush.ms", "1")))
    talk.ask("replace loggers", replacing(LOGGER, "1", ("root", "INFO")))


def config_descriptions(talk: Talk) -> None:
    talk.create_topic("described")
    changed = changing(TOPIC, "described", ("retention.ms", SET, "7000"), ("cleanup.policy", SET, "compact"))
    assert talk.wire.ask(changed).responses[0].error_code == 0
    wanted = DescribeConfigsResource(resource_type=TOPIC, resource_name="described", configuration_keys=["flush.ms"])
    talk.until(DescribeConfigsRequest(resources=[wanted]), 4, lambda a: a.results[0].error_code == 0)

    def told(label: str, kind: int, name: str, *keys: str, version: int = 4, everything: bool = True) -> None:
        resource = DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=list(keys) if keys else None
        )
        request = DescribeConfigsRequest(resources=[resource])
        request.include_synonyms = everything
        answer = talk.wire.ask(request, version)
        for result in answer.results:
            result.configs.sort(key=lambda config: str(config.name))
        talk.note(f"{label} v{version}", answer)

    for version in range(1, 5):
        told("topic", TOPIC, "described", version=version)
        told("topic without synonyms", TOPIC, "described", version=version, everything=False)
    told("some keys", TOPIC, "described", "flush.ms", "no.such", "retention.ms")
    told("unknown topic", TOPIC, "described-none")
    told("illegal topic", TOPIC, "described/illegal")
    told("no topic", TOPIC, "")
    told("unknown kind", 3, "described")
    told("another broker", BROKER, "77")
    told("no number", BROKER, "first")
    told("cluster", BROKER, "")
    told("loggers of nobody", LOGGER, "")
    told("metrics of nobody", METRICS, "")
    told("metrics", METRICS, "described-metrics")
    told("group of no name", GROUP, "")
    told("group", GROUP, "described-group")


def descriptions(talk: Talk) -> None:
    names = ["seen-a", "seen-b", "seen-c"]
    ids = [talk.create_topic(name, count) for name, count in zip(names, (3, 1, 2), strict=True)]

    def paged(label: str, limit: int, *topics: str, cursor: tuple[str, int] | None = None) -> None:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in topics],
            response_partition_limit=limit,
            cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        )
        talk.ask(label, request, 0)

    for limit in (1, 2, 3, 4, 6, 2000, 5000):
        paged(f"limit {limit}", limit, *names)
    for cursor in (("seen-a", 2), ("seen-a", 3), ("seen-b", 0), ("seen-b", 1), ("seen-bb", 0), ("seen-c", 1)):
        paged(f"from {cursor}", 2, *names, cursor=cursor)
    paged("beyond", 2, *names, cursor=("seen-d", 0))
    paged("negative", 2, *names, cursor=("seen-a", -1))
    paged("in any order, some twice", 100, "seen-c", "seen-a", "seen-c")
    paged("unknown", 100, "seen-a", "seen-none", "seen/illegal")
    paged("unknown cursor", 100, "seen-a", cursor=("seen-none", 0))

    def metadata(label: str, version: int, *topics: MetadataRequestTopic) -> None:
        answer = talk.wire.ask(MetadataRequest(topics=list(topics), allow_auto_topic_creation=False), version)
        answer.topics.sort(key=lambda topic: (str(topic.name), topic.topic_id == NO_TOPIC))
        answer.cluster_id = answer.cluster_id is not None
        talk.note(f"{label} v{version}", answer)

    named = [MetadataRequestTopic(name=name) for name in ("seen-a", "seen-b", "seen-a")]
    strange = [MetadataRequestTopic(name=name) for name in ("seen/illegal", "", "x" * 250, "..")]
    for version in range(4, 14):
        metadata("by name", version, *named)
        metadata("strange", version, *strange)
        metadata("none", version)
    for version in (10, 11, 12, 13):
        metadata("by id", version, *(MetadataRequestTopic(name=None, topic_id=one) for one in (ids[1], NO_TOPIC)))
        metadata("id and name", version, MetadataRequestTopic(name="seen-a", topic_id=ids[0]))
        if version < 12:
            metadata("neither", version, MetadataRequestTopic(name=None))

    for version in range(1, 6):
        topic = DescribableLogDirTopic(topic="seen-a", partitions=[0, 2, 9])
        answer = talk.wire.ask(DescribeLogDirsRequest(topics=[topic]), version)
        paths = [one.log_dir for one in answer.results]
        for one in answer.results:
            one.log_dir, one.usable_bytes = "", 0
            for described in one.topics:
                described.partitions.sort(key=lambda partition: int(partition.partition_index))
        talk.note(f"log directories v{version}", answer)
    for version in (1, 2):
        for what, path in (("own", paths[0]), ("slash", paths[0] + "/"), ("none", ""), ("foreign", "/nowhere")):
            wanted = [
                AlterReplicaLogDirTopic(name="seen-a", partitions=[0, 9, 0, -1]),
                AlterReplicaLogDirTopic(name="never", partitions=[0]),
                AlterReplicaLogDirTopic(name="x" * 249, partitions=[0]),
            ]
            moves = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=wanted)])
            moved = talk.wire.ask(moves, version)
            moved.results.sort(key=lambda result: str(result.topic_name))
            for result in moved.results:
                result.partitions.sort(key=lambda partition: int(partition.partition_index))
            talk.note(f"replicas to the {what} directory v{version}", moved)
    for version in (0, 1, 2):
        for kind in (0, 1, 2, 3):
            if version == 0 and kind != 1:
                continue
            request = DescribeClusterRequest(endpoint_type=kind, include_cluster_authorized_operations=kind == 1)
            answer = talk.wire.ask(request, version)
            answer.cluster_id = bool(answer.cluster_id)
            for broker in answer.brokers:
                broker.port = 0
            talk.note(f"cluster {kind} v{version}", answer)
    talk.ask("no such quorum", DescribeQuorumRequest(topics=[TopicData(topic_name="seen-a",
        partitions=[PartitionData(partition_index=0)])]), 2)  # fmt: skip


def config_resources(talk: Talk) -> None:
    def listed(label: str, version: int, *kinds: int) -> None:
        answer = talk.wire.ask(ListConfigResourcesRequest(resource_types=list(kinds)), version)
        own = [one for one in answer.config_resources if one.resource_name.startswith(("resourced", "1", ""))]
        shown = {TOPIC: "resourced", GROUP: "resourced"}
        answer.config_resources = sorted(
            (one for one in own if one.resource_name.startswith(shown.get(one.resource_type, ""))),
            key=lambda one: (int(one.resource_type), str(one.resource_name)),
        )
        talk.note(f"{label} v{version}", answer)

    talk.create_topic("resourced")
    group = changing(GROUP, "resourced-group", ("consumer.session.timeout.ms", SET, "50000"))
    assert talk.wire.ask(group).responses[0].error_code == 0
    wanted = ListConfigResourcesRequest(resource_types=[GROUP])
    talk.until(wanted, 1, lambda a: any(one.resource_name == "resourced-group" for one in a.config_resources))
    listed("metrics", 0)
    for kinds in ((), (TOPIC,), (BROKER,), (LOGGER,), (METRICS,), (GROUP,), (TOPIC, GROUP), (3,), (TOPIC, 77)):
        listed(f"kinds {kinds}", 1, *kinds)


SCENARIOS: dict[str, Callable[[Talk], None]] = {
    "creations": creations,
    "settings of topics": settings_of_topics,
    "partitions added": partitions_added,
    "deletions": deletions,
    "config changes": config_changes,
    "config descriptions": config_descriptions,
    "descriptions": descriptions,
    "config resources": config_resources,
}


@pytest.fixture(scope="module")
def generic_texts(jvm: JavaGateway) -> frozenset[str]:
    return frozenset(error.message() for error in jvm.jvm.org.apache.kafka.common.protocol.Errors.values())


def transcript(scenario: Callable[[Talk], None], server: Server, generic_texts: frozenset[str]) -> list[str]:
    with Talk(server.port, generic_texts) as talk:
        talk.find_coordinator("any")
        scenario(talk)
        lines = [line.replace(str(server.data_dir), "<data>") for line in talk.lines]
        return [re.sub(rf"\b{server.port}\b", "<port>", line) for line in lines]


@pytest.mark.parametrize("name", SCENARIOS)
def test_same_answers_as_apache_kafka(
    name: str, anchor: AnchorKafka, broker: BrokerProcess, generic_texts: frozenset[str]
) -> None:
    theirs = transcript(SCENARIOS[name], anchor, generic_texts)
    ours = transcript(SCENARIOS[name], broker, generic_texts)
    assert ours == theirs
