"""Apache Kafka 4.3.1 as judge: the same bootstrap, the same elections, the same image from our files."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway, JavaObject
from support.anchor import AnchorKafka
from support.jvm import java_array, java_class
from support.logs import Clock
from support.metadata import create, image_of, logged, metadata_directory, started, topic
from support.metadata_history import history
from support.tools import DUMP_LOG, StockTools

from config.broker import BrokerConfig
from controller.checkpoint import list_snapshots
from controller.controller import Controller
from controller.image import NO_LEADER, PartitionImage, TopicImage
from controller.leadership import Rules, elect, partition_change
from controller.record_versions import record_version
from controller.snapshot_records import image_records
from controller.storage_format import ensure_formatted
from controller.transactions import TransactionBuffer
from protocol.metadata import decode_record, encode_record
from protocol.metadata.broker_registration_change_record import BrokerRegistrationChangeRecord
from protocol.metadata.no_op_record import NoOpRecord
from protocol.schema import Message
from protocol.uuids import Uuid

pytestmark = pytest.mark.stock


class KafkaMetadata:
    """Kafka's own record parser, delta and image, fed with our bytes."""

    def __init__(self, gateway: JavaGateway) -> None:
        self._gateway = gateway
        self._jvm = gateway.jvm
        self._serde = self._jvm.org.apache.kafka.metadata.MetadataRecordSerde()

    def parse(self, data: bytes) -> JavaObject:
        buffer = self._jvm.java.nio.ByteBuffer.wrap(bytearray(data))
        accessor = self._jvm.org.apache.kafka.common.protocol.ByteBufferAccessor(buffer)
        return self._serde.read(accessor, len(data)).message()

    def image_records(self, records: list[tuple[int, Message]]) -> list[str]:
        """What Kafka would write as a snapshot after these records, in our form, sorted."""
        image = self._jvm.org.apache.kafka.image
        built = image.MetadataImage.EMPTY
        for offset, (version, record) in enumerate(records):
            delta = image.MetadataDelta.Builder().setImage(built).build()
            delta.replay(self.parse(encode_record(record, version)))
            built = delta.apply(image.MetadataProvenance(offset, 1, 1, True))
        writer = image.writer.RecordListWriter()
        version = self._jvm.org.apache.kafka.server.common.MetadataVersion.fromFeatureLevel(30)
        built.write(writer, self._options(version))
        return sorted(repr(self._ours(item)) for item in writer.records())

    def _options(self, version: JavaObject) -> JavaObject:
        """With eligible replicas whatever the feature's level, or the comparison would not see them."""
        options = self._jvm.org.apache.kafka.image.writer.ImageWriterOptions.Builder(version)
        return options.setEligibleLeaderReplicasEnabled(True).build()

    def _ours(self, item: JavaObject) -> Message:
        cache = self._jvm.org.apache.kafka.common.protocol.ObjectSerializationCache()
        size = self._serde.recordSize(item, cache)
        buffer = self._jvm.java.nio.ByteBuffer.allocate(size)
        self._serde.write(item, cache, self._jvm.org.apache.kafka.common.protocol.ByteBufferAccessor(buffer))
        return _normal(decode_record(bytes(buffer.array()))[0])


def _normal(record: Any) -> Message:
    """Kafka keeps endpoints, features and quota entities in hash order, and sorts directories."""
    for name in ("end_points", "features"):
        if hasattr(record, name):
            setattr(record, name, sorted(getattr(record, name), key=lambda part: str(part.name)))
    if getattr(record, "log_dirs", None):
        record.log_dirs = sorted(record.log_dirs)
    if hasattr(record, "entity"):
        record.entity = sorted(record.entity, key=lambda part: str(part.entity_type))
    return record  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def kafka(jvm: JavaGateway) -> KafkaMetadata:
    return KafkaMetadata(jvm)


@pytest.mark.parametrize("seed", range(6))
def test_kafka_builds_the_same_image_from_the_same_records(kafka: KafkaMetadata, seed: int) -> None:
    records = history(Random(seed), 120)
    ours = sorted(repr(_normal(record)) for record in image_records(image_of(records)))
    theirs = kafka.image_records([(record_version(record, 30), record) for record in records])
    assert ours == theirs


async def test_kafka_reads_our_log_and_snapshot_and_sees_our_image(
    kafka: KafkaMetadata, stock_tools: StockTools, tmp_path: Path
) -> None:
    controller = await started(tmp_path)
    await controller.create_topics(create(topic("a", 3, configs={"retention.ms": "7"}), topic("b")))
    await controller.allocate_producer_ids()
    await controller._snapshotter.write()
    await controller.shutdown()
    log = metadata_directory(tmp_path) / "00000000000000000000.log"
    image = controller.image
    ours = sorted(repr(_normal(record)) for record in image_records(image))
    read = logged(log)
    versions = {id(record): version for version, record in read}
    visible = TransactionBuffer().feed(record for _, record in read)
    assert kafka.image_records([(versions[id(record)], record) for record in visible]) == ours
    snapshot = metadata_directory(tmp_path) / list_snapshots(str(metadata_directory(tmp_path)))[-1].file_name
    for path in (log, snapshot, tmp_path / "bootstrap.checkpoint"):
        dumped = stock_tools.run(DUMP_LOG, "--cluster-metadata-decoder", "--deep-iteration", "--files", str(path))
        assert dumped.code == 0 and not dumped.err, dumped
        assert dumped.out.count("payload: {") >= len(logged(path)) and "Could not" not in dumped.out
        assert dumped.out.count("isvalid: true") == dumped.out.count("baseOffset: ")


async def test_the_bootstrap_is_kafkas_record_by_record(anchor: AnchorKafka, tmp_path: Path) -> None:
    """Format and first start, from the same properties, up to the broker's being active."""
    config = BrokerConfig.load(str(anchor.properties_path), [f"log.dirs={tmp_path}"])
    controller = Controller(config, ensure_formatted(config), clock=Clock())
    await controller.start()
    await controller.register_broker()
    await controller.unfence_broker()
    await controller.shutdown()
    ours, theirs = _beginning(tmp_path), _beginning(anchor.data_dir)
    for mine, kafkas in zip(ours, theirs, strict=True):
        assert mine == kafkas
    assert any("'min.insync.replicas', value='1'" in record for record in ours)
    assert _texts(tmp_path / "bootstrap.checkpoint") == _texts(anchor.data_dir / "bootstrap.checkpoint")
    for directory in (tmp_path, anchor.data_dir):
        names = {path.name for path in metadata_directory(directory).iterdir()}
        assert "00000000000000000000-0000000000.checkpoint" in names and "quorum-state" in names
    ours_state = (metadata_directory(tmp_path) / "quorum-state").read_text()
    assert ours_state == (metadata_directory(anchor.data_dir) / "quorum-state").read_text()


def _texts(path: Path) -> list[str]:
    return [f"v{version} {record!r}" for version, record in logged(path)]


def _beginning(directory: Path) -> list[str]:
    """The records up to the broker's being active; ids of one installation aside.

    Unfencing and the list of cordoned directories come with Kafka's first heartbeats, in either order.
    """
    found, last = [], []
    for version, record in logged(metadata_directory(directory) / "00000000000000000000.log"):
        normal: Any = _normal(record)
        if hasattr(normal, "incarnation_id"):
            normal.incarnation_id = Uuid.ZERO
        if hasattr(normal, "broker_epoch"):
            normal.broker_epoch = 0  # Kafka's first NoOpRecord may come before or after the registration
        if getattr(normal, "log_dirs", None):
            normal.log_dirs = [Uuid.ZERO for _ in normal.log_dirs]
        if isinstance(record, BrokerRegistrationChangeRecord):
            last.append(f"v{version} {normal!r}")
        elif not isinstance(record, NoOpRecord):
            found.append(f"v{version} {normal!r}")
        if len(last) == 2:
            return found + sorted(last)
    raise AssertionError(f"{directory}: the broker was never unfenced: {found}")


class KafkaElections:
    """Kafka's PartitionChangeBuilder for one partition."""

    def __init__(self, gateway: JavaGateway) -> None:
        self._gateway = gateway
        self._jvm = gateway.jvm
        jvm = gateway.jvm
        handles = jvm.java.lang.invoke.MethodHandles
        set_class, object_class = java_class(gateway, "java.util.HashSet"), java_class(gateway, "java.lang.Object")
        boolean, integer = jvm.java.lang.Boolean.TYPE, jvm.java.lang.Integer.TYPE
        self._predicate = java_class(gateway, "java.util.function.IntPredicate")

        def kind(argument: JavaObject) -> JavaObject:
            return jvm.java.lang.invoke.MethodType.methodType(
                boolean, java_array(gateway, jvm.java.lang.Class, [argument])
            )

        self._contains = handles.publicLookup().findVirtual(set_class, "contains", kind(object_class))
        self._int_to_boolean = kind(integer)

    def _ints(self, values: tuple[int, ...]) -> JavaObject:
        array = self._gateway.new_array(self._jvm.int, len(values))
        for position, value in enumerate(values):
            array[position] = value
        return array

    def change(
        self, partition: PartitionImage, isr: tuple[int, ...], rules: Rules, up: set[int], lost: list[int]
    ) -> Message | None:
        kafka = self._jvm.org.apache.kafka
        members = self._jvm.java.util.HashSet(list(up))
        acceptable = self._jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(
            self._predicate, self._contains.bindTo(members).asType(self._int_to_boolean)
        )
        uuids = java_array(
            self._gateway, kafka.common.Uuid, [kafka.common.Uuid.fromString(str(d)) for d in partition.directories]
        )
        state = kafka.metadata.LeaderRecoveryState.of(partition.leader_recovery_state)
        registration = (
            kafka.metadata.PartitionRegistration.Builder()
            .setReplicas(self._ints(partition.replicas))
            .setDirectories(uuids)
            .setIsr(self._ints(partition.isr))
            .setElr(self._ints(partition.elr))
            .setLastKnownElr(self._ints(partition.last_known_elr))
            .setLeader(partition.leader)
            .setLeaderRecoveryState(state)
            .setLeaderEpoch(partition.leader_epoch)
            .setPartitionEpoch(partition.partition_epoch)
            .build()
        )
        version = kafka.server.common.MetadataVersion.fromFeatureLevel(30)
        topic_id = kafka.common.Uuid.fromString(str(TOPIC_ID))
        builder = kafka.controller.PartitionChangeBuilder(
            registration, topic_id, 0, acceptable, version, rules.min_isr, rules.with_elr
        )
        builder.setTargetIsr(list(isr))
        if lost:
            builder.setUncleanShutdownReplicas(lost)
        builder.setDefaultDirProvider(self._no_directory())
        if rules.unclean_allowed:
            elections = java_class(
                self._gateway, "org.apache.kafka.controller.PartitionChangeBuilder$Election"
            ).getEnumConstants()
            builder.setElection(elections[2])
        built = builder.build()
        return self._ours(built.get()) if built.isPresent() else None

    def _no_directory(self) -> JavaObject:
        """Every replica has a directory here, but Kafka asks for the default all the same."""
        interface = java_class(self._gateway, "org.apache.kafka.metadata.placement.DefaultDirProvider")
        jvm = self._jvm
        uuid_class = java_class(self._gateway, "org.apache.kafka.common.Uuid")
        constant = jvm.java.lang.invoke.MethodHandles.constant(uuid_class, jvm.org.apache.kafka.common.Uuid.ZERO_UUID)
        taking = jvm.java.lang.invoke.MethodHandles.dropArguments(
            constant, 0, java_array(self._gateway, jvm.java.lang.Class, [jvm.java.lang.Integer.TYPE])
        )
        return jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(interface, taking)

    def _ours(self, item: JavaObject) -> Message:
        return KafkaMetadata(self._gateway)._ours(item)


TOPIC_ID = Uuid(b"t" * 16)


def _random_case(random: Random) -> tuple[PartitionImage, tuple[int, ...], Rules, set[int], list[int]]:
    replicas = tuple(random.sample(range(1, 6), random.randrange(1, 5)))
    with_elr = random.random() < 0.7
    least = 0 if with_elr else 1
    isr = tuple(random.sample(replicas, random.randrange(least, len(replicas) + 1)))
    rest = [replica for replica in replicas if replica not in isr]
    elr = tuple(sorted(random.sample(rest, random.randrange(len(rest) + 1)))) if with_elr else ()
    leader = random.choice([*isr, NO_LEADER]) if isr and not with_elr else (random.choice(isr) if isr else NO_LEADER)
    last_known = (random.choice(replicas),) if with_elr and not isr and random.random() < 0.6 else ()
    partition = PartitionImage(
        replicas, isr, elr, last_known, (), (), tuple(Uuid(bytes([r]) * 16) for r in replicas), leader, 3, 5,
        random.randrange(2),
    )  # fmt: skip
    leaving = random.choice([*replicas, 0])
    up = {replica for replica in replicas if random.random() < 0.6} - {leaving}
    lost = [leaving] if random.random() < 0.4 and leaving else []
    rules = Rules(up.__contains__, random.randrange(1, len(replicas) + 1), with_elr, random.random() < 0.3)
    return partition, tuple(r for r in isr if r != leaving), rules, up, lost


def test_elections_end_as_in_kafka(jvm: JavaGateway) -> None:
    """Random partitions, random brokers gone: the same change record, or none, in each of 300 cases."""
    random, kafka = Random(4), KafkaElections(jvm)
    for _ in range(300):
        case = partition, isr, rules, up, lost = _random_case(random)
        after = elect(partition, isr, rules, lost)
        ours = partition_change(TopicImage("t", TOPIC_ID, {0: partition}), 0, partition, after)
        assert repr(ours) == repr(kafka.change(partition, isr, rules, up, lost)), case
