"""Snapshots: when they are written, what they are worth, and when they go."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from support.fake_disk import FakeDisk
from support.logs import NOW, Clock
from support.metadata import content, create, logged, metadata_directory, started, topic

from controller.checkpoint import SnapshotId, last_contained_timestamp, list_snapshots, read_snapshot
from controller.controller import Controller
from controller.delta import MetadataError
from controller.quorum_state import QuorumState, read_quorum_state, write_quorum_state
from controller.snapshot_records import image_records
from protocol.uuids import Uuid
from storage.disk import Buffer

HOUR_MS = 3_600_000


async def snapshot(controller: Controller) -> None:
    await controller._snapshotter.write()


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in metadata_directory(directory).glob("*.checkpoint*"))


async def test_a_snapshot_has_kafkas_name_and_holds_the_image(tmp_path: Path) -> None:
    controller = await started(tmp_path)
    await controller.create_topics(create(topic("a", 3, configs={"retention.ms": "5"})))
    await snapshot(controller)
    end = controller.image.offset + 1
    assert files(tmp_path) == ["00000000000000000000-0000000000.checkpoint", f"{end:020d}-0000000001.checkpoint"]
    path = metadata_directory(tmp_path) / f"{end:020d}-0000000001.checkpoint"
    read = read_snapshot(str(path))
    assert list(map(repr, read.records)) == list(map(repr, image_records(controller.image)))
    assert (read.last_contained_timestamp, read.kraft_version) == (NOW, 1)
    assert read.voters is not None and [voter.voter_id for voter in read.voters.voters] == [1]
    assert last_contained_timestamp(str(path)) == NOW
    assert oct(path.stat().st_mode & 0o777) == "0o400"
    assert [version for version, record in logged(path) if type(record).__name__ == "PartitionRecord"] == [2, 2, 2]


async def test_a_start_from_a_snapshot_needs_no_log_before_it(tmp_path: Path) -> None:
    controller = await started(tmp_path)
    await controller.create_topics(create(topic("a", 3)))
    await snapshot(controller)
    await controller.create_topics(create(topic("b")))
    await controller.shutdown()
    expected = controller.image
    again = await started(tmp_path, register=False)
    assert again.image.topics_by_id == expected.topics_by_id
    await again.shutdown()
    for name in ("log", "index", "timeindex"):  # as if the segment had been lost: the snapshot stands for its records
        (metadata_directory(tmp_path) / f"00000000000000000000.{name}").unlink()
    third = await started(tmp_path)
    assert list(third.image.topics_by_name) == ["a"]
    assert third.high_watermark > list_snapshots(str(metadata_directory(tmp_path)))[-1].end_offset
    assert (await third.create_topics(create(topic("c")))).topics[0].error_code == 0


async def test_a_snapshot_is_due_after_so_many_bytes(tmp_path: Path) -> None:
    clock = Clock()
    controller = await started(tmp_path, clock=clock, metadata_log_max_record_bytes_between_snapshots="2000")
    assert files(tmp_path) == ["00000000000000000000-0000000000.checkpoint"]
    for i in range(12):
        await controller.create_topics(create(topic(f"t{i}", 3)))
    snapshotter = controller._snapshotter
    assert snapshotter._due.is_set() or len(files(tmp_path)) > 1
    await controller.shutdown()
    again = await started(tmp_path, clock=clock, metadata_log_max_record_bytes_between_snapshots="2000")
    assert len(again.image.topics_by_name) == 12
    await again.shutdown()


async def test_nothing_new_means_no_new_snapshot(tmp_path: Path) -> None:
    controller = await started(tmp_path)
    await snapshot(controller)
    await snapshot(controller)
    assert len(files(tmp_path)) == 2


async def test_old_snapshots_go_by_the_age_of_what_they_hold(tmp_path: Path) -> None:
    clock = Clock()
    settings = {"metadata_max_retention_ms": str(HOUR_MS), "metadata_max_retention_bytes": "-1"}
    controller = await started(tmp_path, clock=clock, **settings)
    for i in range(4):
        await controller.create_topics(create(topic(f"t{i}")))
        await snapshot(controller)
        clock.now_ms += HOUR_MS // 2
    kept = list_snapshots(str(metadata_directory(tmp_path)))
    times = [last_contained_timestamp(str(metadata_directory(tmp_path) / one.file_name)) for one in kept]
    assert times == [NOW + HOUR_MS // 2, NOW + HOUR_MS, NOW + 3 * HOUR_MS // 2]
    assert controller.log.log.log_start_offset == kept[0].end_offset


async def test_old_snapshots_go_by_size_and_the_latest_always_stays(tmp_path: Path) -> None:
    settings = {"metadata_max_retention_ms": "-1", "metadata_max_retention_bytes": "100"}
    controller = await started(tmp_path, **settings)
    for i in range(3):
        await controller.create_topics(create(topic(f"t{i}")))
        await snapshot(controller)
        end = controller.image.offset + 1
        assert list_snapshots(str(metadata_directory(tmp_path))) == [SnapshotId(end, 1)]
    await controller.shutdown()
    again = await started(tmp_path, **settings)
    assert sorted(again.image.topics_by_name) == ["t0", "t1", "t2"]


async def test_segments_behind_the_oldest_snapshot_are_deleted(tmp_path: Path) -> None:
    clock = Clock()
    settings = {
        "metadata_max_retention_bytes": "100",
        "metadata_max_retention_ms": "-1",
        "internal_metadata_log_segment_bytes": "1024",
        "internal_metadata_delete_delay_millis": "0",
    }
    controller = await started(tmp_path, clock=clock, **settings)
    for i in range(30):
        await controller.create_topics(create(topic(f"t{i}")))
    segments = sorted(metadata_directory(tmp_path).glob("*.log"))
    assert len(segments) > 3
    await snapshot(controller)
    clock.now_ms += 1
    controller.log.remove_deleted_files()
    left = sorted(metadata_directory(tmp_path).glob("*.log"))
    assert len(left) < len(segments) and left[-1] == segments[-1]
    await controller.shutdown()
    again = await started(tmp_path, clock=clock, **settings)
    assert len(again.image.topics_by_name) == 30


class FailsCheckpoints(FakeDisk):
    """Writes of snapshots fail; the log's do not."""

    failing = False

    def pwrite(self, fd: int, data: Buffer, position: int) -> int:
        if self.failing and ".checkpoint" in os.readlink(f"/proc/self/fd/{fd}"):
            super().pwrite(fd, bytes(data)[:10], position)
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().pwrite(fd, data, position)


async def test_a_snapshot_that_cannot_be_written_leaves_all_as_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FailsCheckpoints(tmp_path)
    controller = await started(tmp_path / "data", disk=disk)
    await controller.create_topics(create(topic("a")))
    disk.failing = True
    await snapshot(controller)
    assert "could not be written" in caplog.text
    assert list_snapshots(str(metadata_directory(tmp_path / "data"))) == [SnapshotId(0, 0)]
    assert (await controller.create_topics(create(topic("b")))).topics[0].error_code == 0
    assert any(name.endswith(".part") for name in files(tmp_path / "data"))
    disk.failing = False
    disk.crash()
    again = await started(tmp_path / "data", disk=disk)
    assert sorted(again.image.topics_by_name) == ["a", "b"]
    assert not any(name.endswith(".part") for name in files(tmp_path / "data"))


async def test_a_damaged_snapshot_is_refused_by_name_wherever_it_is_damaged(tmp_path: Path) -> None:
    """Even when older ones are there: what it stands for may be nowhere else, and guessing would lose topics."""
    controller = await started(tmp_path / "data")
    await controller.create_topics(create(topic("a", 2)))
    await snapshot(controller)
    await controller.shutdown()
    latest = list_snapshots(str(metadata_directory(tmp_path / "data")))[-1].file_name
    whole = (metadata_directory(tmp_path / "data") / latest).read_bytes()
    damaged = {
        "empty": b"",
        "a few bytes": whole[:30],
        "without its footer": whole[: whole.rindex(b"\x00\x00\x00\x04")],
        "one byte short": whole[:-1],
        "a flipped bit in a record": _flipped(whole, len(whole) // 2),
        "a flipped bit in the footer": _flipped(whole, len(whole) - 2),
        "something after the footer": whole + whole,
        "rubbish after the footer": whole + b"\x00" * 7,
    }
    for what, data in damaged.items():
        copy = tmp_path / what.replace(" ", "-")
        shutil.copytree(tmp_path / "data", copy)
        path = metadata_directory(copy) / latest
        path.chmod(0o600)
        path.write_bytes(data)
        with pytest.raises(MetadataError, match=f"{latest} is damaged"):
            await started(copy)
            pytest.fail(f"{what}: used")


def _flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


async def test_a_log_that_starts_after_its_snapshots_is_refused(tmp_path: Path) -> None:
    settings = {"metadata_max_retention_bytes": "100", "metadata_max_retention_ms": "-1"}
    controller = await started(tmp_path, internal_metadata_log_segment_bytes="1024", **settings)
    for i in range(20):
        await controller.create_topics(create(topic(f"t{i}")))
    await snapshot(controller)
    await controller.shutdown()
    for path in metadata_directory(tmp_path).glob("*.checkpoint"):
        path.unlink()
    with pytest.raises(MetadataError, match=r"no snapshot holds what was before it.*Restore the missing"):
        await started(tmp_path)


async def test_an_image_of_many_batches_is_read_back_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.checkpoint.MAX_BATCH_BYTES", 500)
    controller = await started(tmp_path)
    await controller.create_topics(create(*(topic(f"t{i}", 5) for i in range(20))))
    await snapshot(controller)
    await controller.shutdown()
    again = await started(tmp_path, register=False)
    differing = set(content(again.image)) ^ set(content(controller.image))
    assert all("RegisterControllerRecord" in record or "RegisterBrokerRecord" in record for record in differing)


# quorum-state


def test_quorum_state_round_trip(tmp_path: Path) -> None:
    assert read_quorum_state(str(tmp_path)) == QuorumState(-1, 0, -1, Uuid.ZERO)
    state = QuorumState(leader_id=3, leader_epoch=8, voted_id=2, voted_directory_id=Uuid(b"v" * 16))
    write_quorum_state(str(tmp_path), state)
    assert read_quorum_state(str(tmp_path)) == state
    assert (tmp_path / "quorum-state").read_text() == (
        '{"leaderId":3,"leaderEpoch":8,"votedId":2,"votedDirectoryId":"dnZ2dnZ2dnZ2dnZ2dnZ2dg","data_version":1}'
    )


def test_quorum_state_of_kafka_before_3_9_is_read(tmp_path: Path) -> None:
    (tmp_path / "quorum-state").write_text(
        '{"clusterId":"","leaderId":1,"leaderEpoch":5,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1}],"data_version":0}'
    )
    assert read_quorum_state(str(tmp_path)) == QuorumState(1, 5, -1, Uuid.ZERO)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"data_version":7,"leaderId":1}', '{"data_version":1}', "null"])
def test_a_quorum_state_that_cannot_be_read_is_not_guessed(tmp_path: Path, text: str) -> None:
    (tmp_path / "quorum-state").write_text(text)
    with pytest.raises(MetadataError, match="quorum-state"):
        read_quorum_state(str(tmp_path))


async def test_each_start_is_a_new_epoch_that_is_stored_before_it_is_used(tmp_path: Path) -> None:
    for epoch in (1, 2, 3):
        controller = await started(tmp_path)
        assert controller.leader_epoch == epoch
        state = read_quorum_state(str(metadata_directory(tmp_path)))
        assert (state.leader_id, state.leader_epoch) == (1, epoch)
        await controller.shutdown()
    (metadata_directory(tmp_path) / "quorum-state").unlink()  # the log knows the epochs that were led
    controller = await started(tmp_path)
    assert controller.leader_epoch == 4
