"""Incremental fetch sessions: epochs, changes, what an incremental answer leaves out, and who gets evicted."""

from __future__ import annotations

import random

import pytest

from broker.fetch_sessions import EVICTION_MS, FetchContext, FetchSessionCache, next_epoch
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData
from protocol.uuids import Uuid


def full(*partitions: int, topic: str = "t", session_id: int = 0, epoch: int = 0) -> FetchRequest:
    wanted = [FetchPartition(partition=p, fetch_offset=0, partition_max_bytes=100) for p in partitions]
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic=topic, partitions=wanted)] if wanted else [],
    )


def cache_of(size: int = 10) -> FetchSessionCache:
    return FetchSessionCache(size, random.Random(1))


def keys(context: FetchContext) -> list[int]:
    return [target.key[1] for target in context.targets]


def answer(context: FetchContext, **values: int) -> list[int]:
    """Answers every partition with nothing new except what `values` says of it: the partitions sent."""
    pairs = [
        (
            target,
            PartitionData(
                partition_index=target.key[1], high_watermark=values.get(f"p{target.key[1]}", 0), records=b""
            ),
        )
        for target in context.targets
    ]
    return [target.key[1] for target, _ in context.select(pairs)]


def code_of(cache: FetchSessionCache, request: FetchRequest, by_id: bool = False) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        cache.open(request, by_id, 0)
    return caught.value.code


def test_a_request_of_the_final_epoch_makes_no_session() -> None:
    cache = cache_of()
    context = cache.open(full(0, 1, epoch=-1), False, 0)
    assert (keys(context), context.session_id, len(cache)) == ([0, 1], 0, 0)


def test_a_session_remembers_its_partitions_and_answers_only_news() -> None:
    cache = cache_of()
    first = cache.open(full(0, 1, 2), False, 0)
    assert answer(first, p0=5) == [0, 1, 2]
    second = cache.open(full(session_id=first.session_id, epoch=1), False, 1)
    assert keys(second) == [0, 1, 2]
    assert answer(second, p0=5, p2=9) == [2]
    third = cache.open(full(session_id=first.session_id, epoch=2), False, 2)
    assert answer(third, p0=5, p2=9) == []


def test_changes_and_forgotten_partitions() -> None:
    cache = cache_of()
    first = cache.open(full(0, 1), False, 0)
    change = full(3, session_id=first.session_id, epoch=1)
    change.topics[0].partitions.append(FetchPartition(partition=1, fetch_offset=77, partition_max_bytes=5))
    change.forgotten_topics_data = [ForgottenTopic(topic="t", partitions=[0, 99])]
    second = cache.open(change, False, 1)
    assert keys(second) == [1, 3]
    assert [target.fetch_offset for target in second.targets] == [77, 0]


def test_partitions_with_data_go_to_the_end() -> None:
    cache = cache_of()
    first = cache.open(full(0, 1, 2), False, 0)
    first.select(
        [(t, PartitionData(partition_index=t.key[1], records=b"x" if t.key[1] == 0 else b"")) for t in first.targets]
    )
    second = cache.open(full(session_id=first.session_id, epoch=1), False, 1)
    assert keys(second) == [1, 2, 0]


def test_an_error_is_told_and_so_is_its_end() -> None:
    cache = cache_of()
    first = cache.open(full(0), False, 0)
    answer(first, p0=4)
    second = cache.open(full(session_id=first.session_id, epoch=1), False, 1)
    failed = [
        (t, PartitionData(error_code=ErrorCode.KAFKA_STORAGE_ERROR, high_watermark=-1, records=b""))
        for t in second.targets
    ]
    assert len(second.select(failed)) == 1
    third = cache.open(full(session_id=first.session_id, epoch=2), False, 2)
    assert answer(third, p0=4) == [0]


def test_wrong_sessions_and_epochs() -> None:
    cache = cache_of()
    session = cache.open(full(0), False, 0).session_id
    assert code_of(cache, full(session_id=session + 1, epoch=1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert code_of(cache, full(session_id=session, epoch=2)) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert code_of(cache, full(session_id=session, epoch=1), by_id=True) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_closing_a_session() -> None:
    cache = cache_of()
    session = cache.open(full(0), False, 0).session_id
    cache.open(full(session_id=session, epoch=-1), False, 1)
    assert len(cache) == 0


def test_a_session_without_partitions_ends() -> None:
    cache = cache_of()
    session = cache.open(full(0), False, 0).session_id
    leave = FetchRequest(
        session_id=session, session_epoch=1, forgotten_topics_data=[ForgottenTopic(topic="t", partitions=[0])]
    )
    context = cache.open(leave, False, 1)
    assert (context.session_id, context.targets, len(cache)) == (0, [], 0)


def test_topic_ids_are_keys_of_their_own() -> None:
    cache = cache_of()
    topic_id = Uuid.random()
    request = FetchRequest(
        session_epoch=0, topics=[FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition=4)])]
    )
    assert cache.open(request, True, 0).targets[0].key == (topic_id, 4)


def test_a_full_cache_evicts_the_unused_and_the_small_but_not_the_young() -> None:
    cache = cache_of(2)
    small = cache.open(full(0), False, 0).session_id
    large = cache.open(full(0, 1, 2), False, 0).session_id
    assert cache.open(full(0, 1), False, EVICTION_MS).session_id == 0, "both are young"
    cache.open(full(session_id=small, epoch=1), False, EVICTION_MS + 1)
    cache.open(full(session_id=large, epoch=1), False, EVICTION_MS + 1)
    newcomer = cache.open(full(0, 1), False, EVICTION_MS + 2).session_id
    assert newcomer != 0, "the small one had its time"
    assert code_of(cache, full(session_id=small, epoch=2)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    later = cache.open(full(0), False, 3 * EVICTION_MS).session_id
    assert later != 0, "the large one was not used for long"
    assert code_of(cache, full(session_id=large, epoch=2)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_epochs_wrap_past_the_special_ones() -> None:
    assert (next_epoch(0), next_epoch(0x7FFFFFFF)) == (1, 1)
