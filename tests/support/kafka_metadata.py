"""Kafka's own metadata classes, fed with our bytes: records, images, and changes of a partition."""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaGateway, JavaObject
from support.jvm import java_array, java_class

from controller.image import PartitionImage
from controller.partition_change import Election, Rules, Target
from protocol.metadata import decode_record, encode_record
from protocol.schema import Message
from protocol.uuids import Uuid

TOPIC_ID = Uuid(b"t" * 16)
NEW_DIRECTORY = Uuid(b"n" * 16)


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
        return sorted(repr(self.ours(item)) for item in writer.records())

    def _options(self, version: JavaObject) -> JavaObject:
        """With eligible replicas whatever the feature's level, or the comparison would not see them."""
        options = self._jvm.org.apache.kafka.image.writer.ImageWriterOptions.Builder(version)
        return options.setEligibleLeaderReplicasEnabled(True).build()

    def ours(self, item: JavaObject) -> Message:
        cache = self._jvm.org.apache.kafka.common.protocol.ObjectSerializationCache()
        size = self._serde.recordSize(item, cache)
        buffer = self._jvm.java.nio.ByteBuffer.allocate(size)
        self._serde.write(item, cache, self._jvm.org.apache.kafka.common.protocol.ByteBufferAccessor(buffer))
        return normal(decode_record(bytes(buffer.array()))[0])


def normal(record: Any) -> Message:
    """Kafka keeps endpoints, features and quota entities in hash order, and sorts directories."""
    for name in ("end_points", "features"):
        if hasattr(record, name):
            setattr(record, name, sorted(getattr(record, name), key=lambda part: str(part.name)))
    if getattr(record, "log_dirs", None):
        record.log_dirs = sorted(record.log_dirs)
    if hasattr(record, "entity"):
        record.entity = sorted(record.entity, key=lambda part: str(part.entity_type))
    return record  # type: ignore[no-any-return]


class KafkaPartitionChanges:
    """Kafka's PartitionChangeBuilder."""

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

    def change(self, partition: PartitionImage, rules: Rules, up: set[int], target: Target) -> Message | None:
        kafka = self._jvm.org.apache.kafka
        members = self._jvm.java.util.HashSet(list(up))
        acceptable = self._jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(
            self._predicate, self._contains.bindTo(members).asType(self._int_to_boolean)
        )
        version = kafka.server.common.MetadataVersion.fromFeatureLevel(rules.metadata_version)
        topic_id = kafka.common.Uuid.fromString(str(TOPIC_ID))
        builder = kafka.controller.PartitionChangeBuilder(
            self._registration(partition), topic_id, 0, acceptable, version, rules.min_isr, rules.with_elr
        )
        for name, wanted in (
            ("setTargetIsr", target.isr),
            ("setTargetReplicas", target.replicas),
            ("setTargetAdding", target.adding),
            ("setTargetRemoving", target.removing),
        ):
            if wanted is not None:
                getattr(builder, name)(list(wanted))
        if target.lost:
            builder.setUncleanShutdownReplicas(list(target.lost))
        if target.leader_recovery_state is not None:
            builder.setTargetLeaderRecoveryState(kafka.metadata.LeaderRecoveryState.of(target.leader_recovery_state))
        for replica, directory in target.directories.items():
            builder.setDirectory(replica, kafka.common.Uuid.fromString(str(directory)))
        builder.setDefaultDirProvider(self._new_directory())
        elections = java_class(
            self._gateway, "org.apache.kafka.controller.PartitionChangeBuilder$Election"
        ).getEnumConstants()
        position = {Election.PREFERRED: 0, Election.ONLINE: 1, Election.UNCLEAN: 2}[target.election]
        builder.setElection(elections[position])
        built = builder.build()
        return KafkaMetadata(self._gateway).ours(built.get()) if built.isPresent() else None

    def _registration(self, partition: PartitionImage) -> JavaObject:
        kafka = self._jvm.org.apache.kafka
        uuids = java_array(
            self._gateway, kafka.common.Uuid, [kafka.common.Uuid.fromString(str(d)) for d in partition.directories]
        )
        return (
            kafka.metadata.PartitionRegistration.Builder()
            .setReplicas(self._ints(partition.replicas))
            .setDirectories(uuids)
            .setIsr(self._ints(partition.isr))
            .setElr(self._ints(partition.elr))
            .setLastKnownElr(self._ints(partition.last_known_elr))
            .setAddingReplicas(self._ints(partition.adding_replicas))
            .setRemovingReplicas(self._ints(partition.removing_replicas))
            .setLeader(partition.leader)
            .setLeaderRecoveryState(kafka.metadata.LeaderRecoveryState.of(partition.leader_recovery_state))
            .setLeaderEpoch(partition.leader_epoch)
            .setPartitionEpoch(partition.partition_epoch)
            .build()
        )

    def _new_directory(self) -> JavaObject:
        """Where a replica goes that is new on its broker."""
        interface = java_class(self._gateway, "org.apache.kafka.metadata.placement.DefaultDirProvider")
        jvm = self._jvm
        uuid_class = java_class(self._gateway, "org.apache.kafka.common.Uuid")
        new = jvm.org.apache.kafka.common.Uuid.fromString(str(NEW_DIRECTORY))
        constant = jvm.java.lang.invoke.MethodHandles.constant(uuid_class, new)
        taking = jvm.java.lang.invoke.MethodHandles.dropArguments(
            constant, 0, java_array(self._gateway, jvm.java.lang.Class, [jvm.java.lang.Integer.TYPE])
        )
        return jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(interface, taking)
