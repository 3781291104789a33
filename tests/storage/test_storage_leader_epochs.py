"""Leader epochs: Kafka's rules case by case, then any sequence of calls against Kafka's own cache."""

from __future__ import annotations

import os
import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.java_gateway import JavaGateway

from storage.checkpoints import CorruptCheckpoint
from storage.leader_epochs import FILE_NAME, UNDEFINED, LeaderEpochCache


@pytest.fixture
def cache(tmp_path: Path) -> LeaderEpochCache:
    return LeaderEpochCache(str(tmp_path))


def text(directory: Path) -> str:
    return (directory / FILE_NAME).read_text()


def test_empty(cache: LeaderEpochCache, tmp_path: Path) -> None:
    assert (cache.latest_epoch, cache.latest_entry, cache.earliest_entry, cache.entries) == (None, None, None, ())
    assert cache.end_offset_for(0, 10) == cache.end_offset_for(-1, 10) == UNDEFINED
    assert cache.epoch_for_offset(0) is cache.previous_epoch() is cache.next_epoch(0) is cache.entry_for(0) is None
    cache.truncate_from_end(0)
    cache.truncate_from_start(100)
    assert os.listdir(tmp_path) == []


def test_assign_writes_the_file(cache: LeaderEpochCache, tmp_path: Path) -> None:
    cache.assign(0, 0)
    cache.assign(2, 10)
    assert text(tmp_path) == "0\n2\n0 0\n2 10\n"
    assert LeaderEpochCache(str(tmp_path)).entries == ((0, 0), (2, 10))
    before = os.stat(cache.path).st_ino
    cache.assign(2, 10)
    cache.assign(2, 55)
    assert cache.entries == ((0, 0), (2, 10)), "an epoch keeps the offset it began at"
    assert os.stat(cache.path).st_ino == before, "the appends of an epoch do not write the file"


def test_assign_removes_what_contradicts(cache: LeaderEpochCache) -> None:
    for epoch, offset in ((1, 0), (2, 10), (3, 20)):
        cache.assign(epoch, offset)
    cache.assign(4, 20)  # nothing was written in epoch 3
    assert cache.entries == ((1, 0), (2, 10), (4, 20))
    cache.assign(5, 5)
    assert cache.entries == ((1, 0), (5, 5))
    cache.assign(3, 7)
    assert cache.entries == ((1, 0), (3, 7))
    cache.assign(3, 2)
    assert cache.entries == ((1, 0), (3, 2))
    for epoch, offset in ((-1, 0), (0, -1)):
        with pytest.raises(ValueError, match="negative"):
            cache.assign(epoch, offset)


def test_end_offset_for(cache: LeaderEpochCache) -> None:
    for epoch, offset in ((2, 10), (4, 20), (7, 30)):
        cache.assign(epoch, offset)
    assert cache.end_offset_for(7, 99) == (7, 99)
    assert cache.end_offset_for(4, 99) == (4, 30)
    assert cache.end_offset_for(5, 99) == cache.end_offset_for(6, 99) == (4, 30)
    assert cache.end_offset_for(2, 99) == cache.end_offset_for(3, 99) == (2, 20)
    assert cache.end_offset_for(1, 99) == (1, 10), "earlier than all that is known"
    assert cache.end_offset_for(8, 99) == UNDEFINED
    assert cache.end_offset_for(-1, 99) == UNDEFINED


def test_look_ups(cache: LeaderEpochCache) -> None:
    for epoch, offset in ((2, 10), (4, 20), (7, 30)):
        cache.assign(epoch, offset)
    assert [cache.epoch_for_offset(offset) for offset in (9, 10, 19, 20, 30, 1000)] == [None, 2, 2, 4, 7, 7]
    assert (cache.previous_epoch(), cache.previous_epoch(4), cache.previous_epoch(2)) == (4, 2, None)
    assert (cache.next_epoch(2), cache.next_epoch(5), cache.next_epoch(7)) == (4, 7, None)
    assert cache.entry_for(4) == (4, 20)
    assert cache.entry_for(5) is None


def test_truncations(cache: LeaderEpochCache, tmp_path: Path) -> None:
    for epoch, offset in ((2, 10), (4, 20), (7, 30)):
        cache.assign(epoch, offset)
    cache.truncate_from_end(31)
    cache.truncate_from_end(-1)
    cache.truncate_from_start(9)
    assert not cache.dirty
    cache.truncate_from_end(30)
    assert cache.entries == ((2, 10), (4, 20))
    cache.truncate_from_start(15)
    assert cache.entries == ((2, 15), (4, 20))
    cache.truncate_from_start(20)
    assert cache.entries == ((4, 20),)
    cache.truncate_from_start(500)
    assert cache.entries == ((4, 500),), "the epoch of the log start is never lost"
    assert cache.dirty
    assert text(tmp_path) == "0\n3\n2 10\n4 20\n7 30\n", "written by the next flush"
    cache.flush()
    assert not cache.dirty
    assert text(tmp_path) == "0\n1\n4 500\n"
    cache.clear_and_flush()
    assert text(tmp_path) == "0\n0\n"


def test_without_autoflush_the_file_waits(tmp_path: Path) -> None:
    cache = LeaderEpochCache(str(tmp_path), autoflush=False)
    cache.assign(1, 0)
    assert cache.dirty
    assert os.listdir(tmp_path) == []
    cache.flush()
    assert text(tmp_path) == "0\n1\n1 0\n"


def test_moves_with_its_directory(cache: LeaderEpochCache, tmp_path: Path) -> None:
    (tmp_path / "moved").mkdir()
    cache.update_parent_dir(str(tmp_path / "moved"))
    cache.assign(1, 0)
    assert text(tmp_path / "moved") == "0\n1\n1 0\n"


@pytest.mark.parametrize("content", ["0\n1\n1\n", "0\n1\n1 2 3\n", "0\n1\na 0\n", "5\n0\n", "0\n2\n1 0\n"])
def test_malformed(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    with pytest.raises(CorruptCheckpoint, match=FILE_NAME):
        LeaderEpochCache(str(tmp_path))


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 50)), max_size=30))
def test_both_columns_always_ascend(
    tmp_path_factory: pytest.TempPathFactory, assignments: list[tuple[int, int]]
) -> None:
    cache = LeaderEpochCache(str(tmp_path_factory.mktemp("epochs")), autoflush=False)
    for epoch, offset in assignments:
        cache.assign(epoch, offset)
        entries = cache.entries
        assert all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairwise(entries))
        assert cache.latest_epoch == epoch


@pytest.mark.stock
@pytest.mark.parametrize("seed", range(6))
def test_same_answers_and_file_as_kafkas(jvm: JavaGateway, tmp_path: Path, seed: int) -> None:
    internals = jvm.jvm.org.apache.kafka.storage.internals
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    failures = internals.log.LogDirFailureChannel(1)
    checkpoint = internals.checkpoint.LeaderEpochCheckpointFile(
        internals.checkpoint.LeaderEpochCheckpointFile.newFile(jvm.jvm.java.io.File(str(tmp_path / "theirs"))), failures
    )
    scheduler = jvm.jvm.org.apache.kafka.server.util.KafkaScheduler(1)
    partition = jvm.jvm.org.apache.kafka.common.TopicPartition("t", 0)
    theirs = internals.epoch.LeaderEpochFileCache(partition, checkpoint, scheduler)
    ours = LeaderEpochCache(str(tmp_path / "ours"))
    scheduler.startup()
    chance = random.Random(seed)
    try:
        for _ in range(60):
            kind, epoch, offset = chance.choice("aaaaaes"), chance.randrange(25), chance.randrange(100)
            if kind == "a":
                ours.assign(epoch, offset)
                theirs.assign(epoch, offset)
            elif kind == "e":
                ours.truncate_from_end(offset)
                theirs.truncateFromEndAsyncFlush(offset)
            else:
                ours.truncate_from_start(offset // 3)
                theirs.truncateFromStartAsyncFlush(offset // 3)
            assert [tuple(e) for e in ours.entries] == [(e.epoch(), e.startOffset()) for e in theirs.epochEntries()]
            asked, at = chance.randrange(-1, 27), chance.randrange(110)
            answer = theirs.endOffsetFor(asked, 1000)
            assert ours.end_offset_for(asked, 1000) == (answer.getKey(), answer.getValue())
            found = theirs.epochForOffset(at)
            assert ours.epoch_for_offset(at) == (found.getAsInt() if found.isPresent() else None)
            found = theirs.previousEpoch(asked)
            assert ours.previous_epoch(asked) == (found.getAsInt() if found.isPresent() else None)
    finally:
        scheduler.shutdown()
    ours.assign(30, 200)
    theirs.assign(30, 200)
    assert text(tmp_path / "ours") == text(tmp_path / "theirs")
    assert LeaderEpochCache(str(tmp_path / "theirs")).entries == ours.entries
