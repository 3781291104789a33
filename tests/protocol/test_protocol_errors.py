"""Error codes: the numbers are the wire's, so the Java enum is the only judge."""

from __future__ import annotations

import pickle

import pytest
from py4j.java_gateway import JavaGateway
from support.jvm import java_class

from protocol.errors import ApiError, ErrorCode


def test_an_api_error_tells_its_code_and_what_happened() -> None:
    error = ApiError(ErrorCode.INVALID_CONFIG, "retention.ms: not a number")
    assert error.code == 40
    assert str(error) == "INVALID_CONFIG: retention.ms: not a number"


def test_an_empty_message_stays_empty_but_prints_the_description() -> None:
    error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert error.message == ""
    assert str(error) == "UNKNOWN_TOPIC_OR_PARTITION: this broker has no such topic or partition"


def test_an_api_error_crosses_a_process_boundary() -> None:
    """Recovery and compaction run in other processes and report their errors back."""
    copy = pickle.loads(pickle.dumps(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "disk gone")))
    assert (copy.code, copy.message) == (ErrorCode.KAFKA_STORAGE_ERROR, "disk gone")


def test_every_code_has_a_description() -> None:
    assert all(code.description for code in ErrorCode)
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert not ErrorCode.NONE.retriable


@pytest.mark.stock
def test_codes_names_and_retriability_are_those_of_the_java_clients(jvm: JavaGateway) -> None:
    retriable = java_class(jvm, "org.apache.kafka.common.errors.RetriableException")
    theirs = {
        error.name(): (error.code(), bool(retriable.isInstance(error.exception())))
        for error in jvm.jvm.org.apache.kafka.common.protocol.Errors.values()
    }
    assert {code.name: (int(code), code.retriable) for code in ErrorCode} == theirs
