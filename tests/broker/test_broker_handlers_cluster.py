"""ApiVersions, DescribeCluster, DescribeQuorum, DescribeLogDirs and FindCoordinator. What is expected of an odd
request was asked of Apache Kafka 4.3.1."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fake_broker import CLUSTER_ID, CONTROLLER_LISTENER, FakeBroker, FakeDirectory

from broker.api import HANDLERS
from protocol.errors import ApiError, ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest

SERVED = {0, 1, 2, 3, 10, 18, 19, 20, 21, 22, 23, 32, 33, 34, 35, 37, 44, 55, 60, 61, 74, 75}
SERVED |= {8, 9, 11, 12, 13, 14, 15, 16, 42, 47, 68, 69}  # groups
SERVED |= {43, 45, 46, 57, 64}  # elections, reassignments, features, registrations
SERVED |= {80, 81}  # voters of the quorum
BY_CONTROLLERS = {1, 18, 19, 20, 32, 33, 37, 43, 44, 45, 46, 55, 57, 60, 64, 80, 81}
BY_CONTROLLERS |= {52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82}  # between the nodes of a cluster
SHARE_KEY = "g:AAAAAAAAAAAAAAAAAAAAAQ:0"


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker().register()


def software(version: int, name: str = "test", number: str = "1.0") -> ApiVersionsRequest:
    return (
        ApiVersionsRequest(client_software_name=name, client_software_version=number)
        if version > 2
        else (ApiVersionsRequest())
    )


@pytest.mark.parametrize("version", range(5))
async def test_api_versions_lists_exactly_the_registered_handlers(broker: FakeBroker, version: int) -> None:
    response = await broker.ask(software(version), version)
    assert response.error_code == ErrorCode.NONE
    assert {api.api_key for api in response.api_keys} == SERVED == set(HANDLERS)
    ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    assert ranges[0] == (0, 13)  # KAFKA-18659: served from 3 on
    assert ranges[3] == (0, 13)
    assert ranges[19] == (2, 7)
    assert ranges[22] == (0, 5)  # version 6 is unstable in Apache Kafka
    assert ranges[35] == (1, 5)


async def test_api_versions_of_version_3_hides_features_that_start_at_zero(broker: FakeBroker) -> None:
    """KAFKA-17011: clients before 3.9 refuse a response with a feature whose lowest version is 0."""
    old = await broker.ask(software(3), 3)
    new = await broker.ask(software(4), 4)
    assert [(f.name, f.min_version, f.max_version) for f in old.supported_features] == [("metadata.version", 7, 30)]
    assert {f.name: (f.min_version, f.max_version) for f in new.supported_features} == {
        "metadata.version": (7, 30),
        "kraft.version": (0, 1),
        "group.version": (0, 1),
        "share.version": (0, 1),
        "streams.version": (0, 1),
        "transaction.version": (0, 2),
        "eligible.leader.replicas.version": (0, 1),
    }
    finalized = {f.name: (f.min_version_level, f.max_version_level) for f in new.finalized_features}
    assert finalized["metadata.version"] == (30, 30)
    assert finalized["kraft.version"] == (1, 1)
    assert finalized["transaction.version"] == (2, 2)
    assert new.finalized_features_epoch == broker.image.offset
    assert not new.zk_migration_ready


@pytest.mark.parametrize(
    ("name", "number"), [("", ""), ("a b", "1"), ("-a", "1"), ("a", "1-"), ("ab_c", "1"), ("é", "1"), ("a\n", "1")]
)
async def test_api_versions_refuses_a_client_that_misnames_itself(broker: FakeBroker, name: str, number: str) -> None:
    response = await broker.ask(software(3, name, number), 3)
    assert (response.error_code, response.api_keys) == (ErrorCode.INVALID_REQUEST, [])


async def test_api_versions_accepts_dots_and_dashes_inside(broker: FakeBroker) -> None:
    assert (await broker.ask(software(3, "apache-kafka.java", "4.3.1-rc1"), 3)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [5, 9, 32767, -1])
def test_api_versions_in_an_unknown_version_tells_of_its_own_versions_only(broker: FakeBroker, version: int) -> None:
    response = HANDLERS[18].function(broker.context(ApiVersionsRequest(), version), ApiVersionsRequest())
    assert isinstance(response, ApiVersionsResponse)
    sent = ApiVersionsResponse.decode(response.encode(0), 0)
    assert sent.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(a.api_key, a.min_version, a.max_version) for a in sent.api_keys] == [(18, 0, 4)]


async def test_api_versions_on_the_controller_listener_lists_what_a_controller_serves(broker: FakeBroker) -> None:
    response = await broker.ask(software(4), 4, listener=CONTROLLER_LISTENER)
    assert {api.api_key for api in response.api_keys} == BY_CONTROLLERS


@pytest.mark.parametrize("version", range(3))
async def test_describe_cluster(broker: FakeBroker, version: int) -> None:
    broker.register(2, rack="r2").register(3, fenced=True)
    response = await broker.ask(DescribeClusterRequest(), version)
    assert (response.error_code, response.cluster_id, response.controller_id) == (0, CLUSTER_ID, 1)
    assert [(b.broker_id, b.host, b.port, b.rack) for b in response.brokers] == [
        (1, "broker1.example", 9092, None),
        (2, "broker2.example", 9093, "r2"),
    ]
    assert response.cluster_authorized_operations == -2147483648


async def test_describe_cluster_with_fenced_brokers_and_operations(broker: FakeBroker) -> None:
    broker.register(3, fenced=True)
    request = DescribeClusterRequest(include_fenced_brokers=True, include_cluster_authorized_operations=True)
    response = await broker.ask(request)
    assert [(b.broker_id, b.is_fenced) for b in response.brokers] == [(1, False), (3, True)]
    assert response.cluster_authorized_operations == 8096  # as Apache Kafka without an authorizer


@pytest.mark.parametrize(
    ("endpoint_type", "code", "message"),
    [
        (
            2,
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        ),
        (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "Unsupported endpoint type 7"),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "Unsupported endpoint type 0"),
    ],
)
async def test_describe_cluster_of_another_endpoint_type(
    broker: FakeBroker, endpoint_type: int, code: ErrorCode, message: str
) -> None:
    response = await broker.ask(DescribeClusterRequest(endpoint_type=endpoint_type), 1)
    assert (response.error_code, response.error_message, response.brokers) == (code, message, [])


async def test_describe_cluster_on_the_controller_listener_wants_the_controllers(broker: FakeBroker) -> None:
    response = await broker.ask(DescribeClusterRequest(endpoint_type=2), 1, listener=CONTROLLER_LISTENER)
    assert (response.error_code, response.endpoint_type, response.controller_id) == (0, 2, 1)
    refused = await broker.ask(DescribeClusterRequest(endpoint_type=1), 1, listener=CONTROLLER_LISTENER)
    assert refused.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


@pytest.mark.parametrize(
    ("reached", "advertised"),
    [
        (("10.0.0.7", 19092), ("10.0.0.7", 19092)),
        (("::ffff:10.0.0.7", 19092), ("10.0.0.7", 19092)),
        (("fd00::7", 9092), ("fd00::7", 9092)),
    ],
)
async def test_an_unset_advertised_listener_is_the_address_that_the_client_reached(
    reached: tuple[str, int], advertised: tuple[str, int]
) -> None:
    broker = FakeBroker({"advertised.listeners": "", "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"})
    broker.register().register(2)
    response = await broker.ask(DescribeClusterRequest(), local_address=reached)
    assert [(b.host, b.port) for b in response.brokers] == [advertised, ("broker2.example", 9093)]


async def test_describe_quorum_is_the_controllers_answer_or_its_refusal(broker: FakeBroker) -> None:
    def refuse(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        raise ApiError(ErrorCode.NOT_CONTROLLER, "not me")

    for version in range(3):
        assert (await broker.ask(DescribeQuorumRequest(), version)).error_code == 0
    broker.controller.quorum = refuse
    for version in range(3):
        response = await broker.ask(DescribeQuorumRequest(), version)
        assert response.error_code == ErrorCode.NOT_CONTROLLER
    assert response.error_message == "not me"


@pytest.mark.parametrize("version", range(1, 6))
async def test_describe_log_dirs(broker: FakeBroker, tmp_path: Path, version: int) -> None:
    one, two = str(tmp_path), str(tmp_path / "two")
    broker.logs.directories = [FakeDirectory(one), FakeDirectory(two, online=False)]
    broker.replicas.add("b", 10, one, size_bytes=5)
    broker.replicas.add("b", 2, one, size_bytes=77, log_end_offset=9, high_watermark=9)
    broker.replicas.add("a", 0, one)
    response = await broker.ask(DescribeLogDirsRequest(topics=None), version)
    first, second = response.results
    assert (first.error_code, first.log_dir) == (0, one)
    assert [
        (t.name, [(p.partition_index, p.partition_size, p.offset_lag) for p in t.partitions]) for t in first.topics
    ] == [
        ("a", [(0, 0, 0)]),
        ("b", [(2, 77, 0), (10, 5, 0)]),
    ]
    assert not any(p.is_future_key for t in first.topics for p in t.partitions)
    assert (second.error_code, second.log_dir, second.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, two, [])
    if version >= 4:
        assert first.total_bytes >= first.usable_bytes > 0
        assert (second.total_bytes, second.usable_bytes) == (-1, -1)


async def test_describe_log_dirs_of_chosen_partitions_leaves_out_what_is_not_here(
    broker: FakeBroker, tmp_path: Path
) -> None:
    broker.logs.directories = [FakeDirectory(str(tmp_path))]
    for index in range(3):
        broker.replicas.add("t", index, str(tmp_path))
    wanted = [
        DescribableLogDirTopic(topic="t", partitions=[2, 0, 9, 2]),
        DescribableLogDirTopic(topic="nope", partitions=[0]),
    ]
    (result,) = (await broker.ask(DescribeLogDirsRequest(topics=wanted))).results
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in result.topics] == [("t", [0, 2])]
    (empty,) = (await broker.ask(DescribeLogDirsRequest(topics=[]))).results
    assert empty.topics == []
    assert empty.total_bytes > 0


async def test_describe_log_dirs_shows_copies_on_their_way(broker: FakeBroker, tmp_path: Path) -> None:
    one, two = str(tmp_path), str(tmp_path / "two")
    broker.logs.directories = [FakeDirectory(one), FakeDirectory(two)]
    broker.replicas.add("t", 0, one, size_bytes=90, log_end_offset=9, high_watermark=7)
    broker.logs.add_future("t", 0, two, size_bytes=40, log_end_offset=4)
    broker.logs.add_future("t", 1, two, size_bytes=10, log_end_offset=1)  # the directory it comes from is offline
    for topics in (None, [DescribableLogDirTopic(topic="t", partitions=[0, 1])]):
        results = (await broker.ask(DescribeLogDirsRequest(topics=topics))).results
        assert [
            [(p.partition_index, p.partition_size, p.offset_lag, p.is_future_key) for p in result.topics[0].partitions]
            for result in results
        ] == [[(0, 90, 0, False)], [(0, 40, 5, True), (1, 10, -1, True)]]


async def test_describe_log_dirs_of_a_directory_that_vanished(broker: FakeBroker, tmp_path: Path) -> None:
    broker.logs.directories = [FakeDirectory(str(tmp_path / "gone"))]
    (result,) = (await broker.ask(DescribeLogDirsRequest(topics=None))).results
    assert (result.error_code, result.total_bytes, result.usable_bytes) == (0, -1, -1)


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("key_type", [0, 1, 2, 3, -1])
async def test_find_coordinator_has_none_for_any_key_yet(broker: FakeBroker, version: int, key_type: int) -> None:
    if version == 0 and key_type:
        return
    known = key_type in (0, 1) or (key_type == 2 and version >= 6)
    expected = ErrorCode.COORDINATOR_NOT_AVAILABLE if known else ErrorCode.INVALID_REQUEST
    if version < 4:
        response = await broker.ask(FindCoordinatorRequest(key=SHARE_KEY, key_type=key_type), version)
        answers = [response]
    else:
        keys = [SHARE_KEY, SHARE_KEY[:-1] + "1"]
        response = await broker.ask(FindCoordinatorRequest(coordinator_keys=keys, key_type=key_type), version)
        answers = response.coordinators
        assert [answer.key for answer in answers] == keys
    assert [(a.error_code, a.node_id, a.host, a.port) for a in answers] == [(expected, -1, "", -1)] * len(answers)


@pytest.mark.parametrize(
    "key", ["", "g", "g:x:1", ":AAAAAAAAAAAAAAAAAAAAAQ:0", "g:AAAAAAAAAAAAAAAAAAAAAQ:x", "g:AAAA:0"]
)
async def test_find_coordinator_refuses_a_key_that_names_no_share_partition(broker: FakeBroker, key: str) -> None:
    response = await broker.ask(FindCoordinatorRequest(coordinator_keys=[key, SHARE_KEY], key_type=2))
    codes = [coordinator.error_code for coordinator in response.coordinators]
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert (await broker.ask(FindCoordinatorRequest(coordinator_keys=[]))).coordinators == []
