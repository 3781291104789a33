"""What was acknowledged survives; what was not may be lost, but never by half."""

from __future__ import annotations

import asyncio
import errno
import shutil
import threading
from pathlib import Path

import pytest
from support.fake_disk import FakeDisk
from support.logs import Clock
from support.metadata import (
    NODE_ID,
    content,
    create,
    heartbeat,
    metadata_directory,
    node_config,
    producer_ids,
    register_broker,
    started,
    topic,
)

from controller.controller import Controller
from controller.delta import MetadataError
from controller.image import NO_LEADER, ImageDelta, MetadataImage
from controller.storage_format import ensure_formatted
from protocol.errors import ErrorCode
from protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from protocol.messages.create_topics import CreateTopicsResponse
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from protocol.metadata import encode_record
from protocol.metadata.begin_transaction_record import BeginTransactionRecord
from protocol.metadata.no_op_record import NoOpRecord
from protocol.metadata.topic_record import TopicRecord
from protocol.records import Record, build_batch
from protocol.uuids import Uuid


class HeldDisk(FakeDisk):
    """Its syncs of the log can be made to wait, so that a test stands between an append and its durability."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.hold = False
        self.entered = threading.Event()
        self.release = threading.Event()

    def fdatasync(self, fd: int) -> None:
        if self.hold:
            self.entered.set()
            self.release.wait(30)
        super().fdatasync(fd)


def codes(response: CreateTopicsResponse) -> list[ErrorCode]:
    return [ErrorCode(result.error_code) for result in response.topics]


def setting(name: str, value: str) -> AlterableConfig:
    return AlterableConfig(name=name, value=value)


def log_file(directory: Path) -> Path:
    return metadata_directory(directory) / "00000000000000000000.log"


async def test_an_acknowledged_change_survives_a_power_failure(tmp_path: Path) -> None:
    disk = FakeDisk(tmp_path)
    controller = await started(tmp_path / "data", disk=disk)
    for name in ("a", "b", "c"):
        assert codes(await controller.create_topics(create(topic(name, 2, configs={"retention.ms": "5"})))) == [0]
    await controller.delete_topics(DeleteTopicsRequest(topic_names=["b"], timeout_ms=1000), api_version=5)
    block = await producer_ids(controller)
    before = controller.image
    disk.crash(spoil_indexes=True)
    again = await started(tmp_path / "data", disk=disk, register=False)
    assert sorted(again.image.topics_by_name) == ["a", "c"]
    assert again.image.topics_by_id == before.topics_by_id
    assert again.image.configs == before.configs
    assert again.image.next_producer_id == block.producer_id_start + block.producer_id_len
    assert again.leader_epoch == 2 and again.cluster_id == controller.cluster_id


async def test_a_restart_without_a_crash_gives_the_same_image(tmp_path: Path) -> None:
    controller = await started(tmp_path)
    await controller.create_topics(create(topic("a", 3)))
    epoch = controller.image.brokers[1].epoch
    while not (await controller.on_broker_heartbeat(heartbeat(controller, epoch, shut_down=True))).should_shut_down:
        pass
    await controller.shutdown()
    before = controller.image
    again = await started(tmp_path, register=False)
    differing = set(content(again.image)) ^ set(content(before))
    assert all("RegisterControllerRecord" in record for record in differing)  # of another incarnation
    assert again.image.brokers[1].fenced
    await again.shutdown()


@pytest.mark.parametrize("surviving", [0, 1, 11, 12, 60, 61, 100, 1 << 20])
async def test_a_crash_before_the_sync_loses_the_change_or_keeps_all_of_it(tmp_path: Path, surviving: int) -> None:
    disk = HeldDisk(tmp_path)
    controller = await started(tmp_path / "data", disk=disk)
    await controller.create_topics(create(topic("kept")))
    seen: list[MetadataImage] = []
    controller.subscribe(lambda image, delta: seen.append(image))
    disk.hold = True
    change = asyncio.create_task(controller.create_topics(create(topic("in-flight", 3))))
    await asyncio.to_thread(disk.entered.wait, 30)
    assert not change.done() and not seen, "nobody may hear of it before it is durable"
    assert "in-flight" not in controller.image.topics_by_name
    disk.crash(surviving=surviving)
    disk.release.set()
    await change
    disk.hold = False
    again = await started(tmp_path / "data", disk=disk)
    assert "kept" in again.image.topics_by_name
    in_flight = again.image.topics_by_name.get("in-flight")
    assert (in_flight is None) == (surviving < 1 << 20)
    assert in_flight is None or len(in_flight.partitions) == 3
    assert codes(await again.create_topics(create(topic("after")))) == [0]


async def test_concurrent_changes_share_a_sync_and_an_answer_that_rests_on_one_waits_for_it(tmp_path: Path) -> None:
    disk = HeldDisk(tmp_path)
    controller = await started(tmp_path / "data", disk=disk)
    disk.hold = True
    first = asyncio.create_task(controller.create_topics(create(topic("a"))))
    await asyncio.to_thread(disk.entered.wait, 30)
    others = [asyncio.create_task(controller.create_topics(create(topic(f"t{i}")))) for i in range(20)]
    same = asyncio.create_task(controller.create_topics(create(topic("a"))))
    await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))
    assert not same.done(), "TOPIC_ALREADY_EXISTS would speak of a topic that a crash may still take"
    before = disk.syncs
    disk.hold = False
    disk.release.set()
    answers = await asyncio.gather(first, *others, same)
    assert [codes(answer) for answer in answers] == [[0]] * 21 + [[ErrorCode.TOPIC_ALREADY_EXISTS]]
    assert disk.syncs - before <= 3  # the one under way, and one for all the others


async def test_a_failing_sync_is_an_error_and_the_end_of_changes(tmp_path: Path) -> None:
    disk = FakeDisk(tmp_path)
    controller = await started(tmp_path / "data", disk=disk)
    await controller.create_topics(create(topic("kept")))
    before, told = controller.image, []
    controller.subscribe(lambda image, delta: told.append(delta))
    disk.fail_next_fsync = errno.EIO
    answer = await controller.create_topics(create(topic("lost")))
    assert codes(answer) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert "cannot be written" in (answer.topics[0].error_message or "")
    assert controller.image is before and not told
    refused = await controller.create_topics(create(topic("kept")))  # even what needs no write: nobody knows any more
    assert codes(refused) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert (await producer_ids(controller)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    await controller.shutdown()
    disk.crash()
    again = await started(tmp_path / "data", disk=disk)
    assert list(again.image.topics_by_name) == ["kept"]
    assert codes(await again.create_topics(create(topic("lost")))) == [0]


async def test_a_full_disk_refuses_one_change_and_no_more(tmp_path: Path) -> None:
    disk = FakeDisk(tmp_path)
    controller = await started(tmp_path / "data", disk=disk)
    before = controller.image
    disk.full = True
    assert codes(await controller.create_topics(create(topic("a")))) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert controller.image is before
    disk.full = False
    assert codes(await controller.create_topics(create(topic("a")))) == [0]
    disk.crash()
    again = await started(tmp_path / "data", disk=disk)
    assert list(again.image.topics_by_name) == ["a"]


async def test_a_torn_tail_is_cut_wherever_it_tears(tmp_path: Path) -> None:
    controller = await started(tmp_path / "data")
    await controller.create_topics(create(topic("kept")))
    size = log_file(tmp_path / "data").stat().st_size
    await controller.create_topics(create(topic("torn", 2)))
    whole = log_file(tmp_path / "data").read_bytes()
    for cut in [*range(size, len(whole), 9), len(whole) - 1]:
        copy = tmp_path / f"cut{cut}"
        shutil.copytree(tmp_path / "data", copy)
        log_file(copy).write_bytes(whole[:cut])
        again = await started(copy, register=False)
        assert list(again.image.topics_by_name) == ["kept"], f"torn at {cut}"
        await again.shutdown()


async def test_a_batch_with_a_wrong_checksum_at_the_end_is_cut(tmp_path: Path) -> None:
    controller = await started(tmp_path)
    await controller.create_topics(create(topic("kept")))
    size = log_file(tmp_path).stat().st_size
    await controller.create_topics(create(topic("spoilt")))
    data = bytearray(log_file(tmp_path).read_bytes())
    data[size + 70] ^= 0xFF
    log_file(tmp_path).write_bytes(data)
    again = await started(tmp_path)
    assert list(again.image.topics_by_name) == ["kept"]
    assert codes(await again.create_topics(create(topic("after")))) == [0]


async def test_a_caller_that_goes_away_does_not_hide_its_change(tmp_path: Path) -> None:
    """A client that closed its connection used to leave the change durable but unpublished until the next one."""
    disk = HeldDisk(tmp_path)
    controller = await started(tmp_path / "data", disk=disk)
    published = asyncio.Event()
    controller.subscribe(lambda image, delta: published.set())
    settings = [setting("num.io.threads", "9"), setting("min.insync.replicas", "1")]
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=settings)
    disk.hold = True
    change = asyncio.create_task(controller.alter_configs(AlterConfigsRequest(resources=[resource])))
    await asyncio.to_thread(disk.entered.wait, 30)
    change.cancel()
    with pytest.raises(asyncio.CancelledError):
        await change
    disk.release.set()
    await asyncio.wait_for(published.wait(), 30)
    assert controller.image.default_broker_configs.get("num.io.threads") == "9"


async def test_dynamic_settings_count_when_they_are_durable(tmp_path: Path) -> None:
    disk = HeldDisk(tmp_path)
    controller = await started(tmp_path / "data", disk=disk)
    resource = AlterConfigsResource(
        resource_type=4,
        resource_name="",
        configs=[setting("log.retention.ms", "77"), setting("min.insync.replicas", "1")],
    )
    disk.hold = True
    change = asyncio.create_task(controller.alter_configs(AlterConfigsRequest(resources=[resource])))
    await asyncio.to_thread(disk.entered.wait, 30)
    assert controller.effective_config.log_retention_ms != 77
    disk.release.set()
    assert (await change).responses[0].error_code == 0
    assert controller.effective_config.log_retention_ms == 77


async def test_a_time_limit_ends_the_waiting_not_the_change(tmp_path: Path) -> None:
    disk = HeldDisk(tmp_path)
    controller = await started(tmp_path / "data", disk=disk)
    end = controller.high_watermark
    late = await controller.create_topics(create(topic("never"), timeout_ms=0))
    assert codes(late) == [ErrorCode.REQUEST_TIMED_OUT] and controller.high_watermark == end
    published = asyncio.Event()
    controller.subscribe(lambda image, delta: published.set())
    disk.hold = True
    answer = await controller.create_topics(create(topic("slow"), timeout_ms=1))
    assert codes(answer) == [ErrorCode.REQUEST_TIMED_OUT]
    assert "slow" not in controller.image.topics_by_name
    disk.release.set()
    await asyncio.wait_for(published.wait(), 30)
    assert list(controller.image.topics_by_name) == ["slow"]


async def test_subscribers_get_every_image_in_order_and_cannot_stop_it(tmp_path: Path) -> None:
    controller = await started(tmp_path)
    steps: list[tuple[int, set[str]]] = []

    def broken(image: MetadataImage, delta: ImageDelta) -> None:
        raise ValueError("a subscriber's own fault")

    controller.subscribe(broken)
    controller.subscribe(lambda image, delta: steps.append((image.offset, delta.created_topics)))
    for name in ("a", "b"):
        await controller.create_topics(create(topic(name)))
        assert steps[-1] == (controller.image.offset, {name}), "told before the answer"
    assert steps == sorted(steps, key=lambda step: step[0])


async def test_a_request_that_makes_too_many_records_is_refused_whole(tmp_path: Path) -> None:
    """10,000 partitions pass Kafka's limit of partitions, but with the topic's own record not that of records."""
    controller = await started(tmp_path)
    end = controller.high_watermark
    answer = await controller.create_topics(create(topic("a", 10_000)))
    assert codes(answer) == [ErrorCode.POLICY_VIOLATION]
    assert answer.topics[0].error_message == "Unable to perform excessively large batch operation."
    assert controller.high_watermark == end and not controller.image.topics_by_name


async def test_brokers_may_cause_more_records_than_administrators(tmp_path: Path) -> None:
    """What a broker that comes or goes changes is as much as it leads. It used to be refused for good: the partitions
    of a broker with more than 10,000 of them got no leader again."""
    controller = await started(tmp_path)
    for name in ("a", "b"):
        assert codes(await controller.create_topics(create(topic(name, 5001)))) == [0]
    epoch = controller.image.brokers[NODE_ID].epoch

    def leaders() -> set[int]:
        topics = controller.image.topics_by_name.values()
        return {partition.leader for one in topics for partition in one.partitions.values()}

    fenced = await controller.on_broker_heartbeat(heartbeat(controller, epoch, fence=True))
    assert (fenced.error_code, fenced.is_fenced) == (0, True) and leaders() == {NO_LEADER}
    back = await controller.on_broker_heartbeat(heartbeat(controller, epoch))
    assert (back.error_code, back.is_fenced) == (0, False) and leaders() == {NODE_ID}
    leaving = await controller.on_broker_heartbeat(heartbeat(controller, epoch, shut_down=True))
    assert leaving.error_code == 0 and leaders() == {NO_LEADER}
    gone = await controller.on_broker_heartbeat(heartbeat(controller, epoch, shut_down=True))
    assert gone.should_shut_down
    await register_broker(controller)  # without proof that it stopped properly: it leaves all that is eligible, too
    offsets = controller.image.offset
    assert offsets > 50_000 and leaders() == {NODE_ID}
    await controller.shutdown()
    again = await started(tmp_path, register=False)
    assert again.image.offset >= offsets and again.image.topics_by_id == controller.image.topics_by_id
    await again.shutdown()


async def test_a_batch_of_more_than_8_mib_is_refused_whole(tmp_path: Path) -> None:
    controller = await started(tmp_path)
    large = {"leader.replication.throttled.replicas": ",".join(["12345:67890"] * 2700)}
    answer = await controller.create_topics(create(*(topic(f"t{i}", configs=large) for i in range(300))))
    assert set(codes(answer)) == {ErrorCode.RECORD_LIST_TOO_LARGE}
    assert not controller.image.topics_by_name
    assert codes(await controller.create_topics(create(topic("small")))) == [0]


async def test_blocks_of_producer_ids_never_overlap(tmp_path: Path) -> None:
    disk = FakeDisk(tmp_path)
    seen: set[int] = set()
    for _ in range(3):
        controller = await started(tmp_path / "data", disk=disk)
        blocks = await asyncio.gather(*(producer_ids(controller) for _ in range(4)))
        for first, size in ((block.producer_id_start, block.producer_id_len) for block in blocks):
            assert size == 1000 and seen.isdisjoint(range(first, first + size))
            seen.update(range(first, first + size))
        disk.crash()
    assert seen == set(range(12_000))


async def test_an_open_transaction_at_the_end_of_the_log_is_aborted(tmp_path: Path) -> None:
    controller = await started(tmp_path)
    await controller.create_topics(create(topic("kept")))
    end, epoch = controller.high_watermark, controller.leader_epoch
    await controller.shutdown()
    end = controller.image.offset + 1
    records = [BeginTransactionRecord(name="x"), TopicRecord(name="half", topic_id=Uuid.random()), NoOpRecord()]
    batch = build_batch(
        [Record(0, Clock()(), None, encode_record(record, 0)) for record in records],
        base_offset=end,
        leader_epoch=epoch,
    )
    with log_file(tmp_path).open("ab") as file:
        file.write(batch)
    again = await started(tmp_path)
    assert list(again.image.topics_by_name) == ["kept"]
    assert codes(await again.create_topics(create(topic("half")))) == [0]
    await again.shutdown()
    third = await started(tmp_path)
    assert sorted(third.image.topics_by_name) == ["half", "kept"]


async def test_only_an_active_controller_decides(tmp_path: Path) -> None:
    controller = await started(tmp_path)
    assert controller.is_active and controller.leader_id == 1
    await controller.shutdown()
    assert controller.leader_id == -1
    assert codes(await controller.create_topics(create(topic("a")))) == [ErrorCode.NOT_CONTROLLER]
    assert (await producer_ids(controller)).error_code == ErrorCode.NOT_CONTROLLER


async def test_a_log_of_records_from_the_future_is_refused_with_its_place(tmp_path: Path) -> None:
    controller = await started(tmp_path)
    await controller.shutdown()
    value = bytearray(encode_record(NoOpRecord(), 0))
    value[1] = 99
    offset = controller.image.offset + 1
    with log_file(tmp_path).open("ab") as file:
        file.write(build_batch([Record(0, 1, None, bytes(value))], base_offset=offset, leader_epoch=1))
    with pytest.raises(MetadataError, match=rf"{metadata_directory(tmp_path)} cannot be applied at offset {offset}"):
        await started(tmp_path)


async def test_describe_quorum_tells_of_the_one_voter(tmp_path: Path) -> None:
    controller = await started(tmp_path)
    request = DescribeQuorumRequest(
        topics=[TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    )
    response = controller.describe_quorum(request)
    partition = response.topics[0].partitions[0]
    assert (partition.leader_id, partition.leader_epoch) == (1, 1)
    assert partition.high_watermark == controller.image.offset + 1
    assert [v.replica_directory_id for v in partition.current_voters] == [controller.node.metadata_directory_id]
    assert [(n.node_id, n.listeners[0].port) for n in response.nodes] == [(1, 9093)]
    request.topics[0].topic_name = "other"
    other = controller.describe_quorum(request).topics[0].partitions[0]
    assert other.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_node_that_is_no_voter_does_not_lead(tmp_path: Path) -> None:
    """The directory of another voter, copied here with its meta.properties replaced: the same id, another disk."""
    (tmp_path / "other").mkdir()
    other = await started(tmp_path / "other")
    await other.shutdown()
    config = node_config(tmp_path / "mine")
    node = ensure_formatted(config)
    shutil.rmtree(metadata_directory(tmp_path / "mine"))
    shutil.copytree(metadata_directory(tmp_path / "other"), metadata_directory(tmp_path / "mine"))
    controller = Controller(config, node, clock=Clock())
    await controller.start()
    assert not controller.is_alone and not controller.raft.node.is_voter
    assert codes(await controller.create_topics(create(topic("a")))) == [ErrorCode.NOT_CONTROLLER]
    assert controller.leader_id == -1 and not controller.is_active
    await controller.shutdown()
