"""Client quotas, SCRAM credentials, ACLs and delegation tokens: records out of requests, in Kafka's words."""

from __future__ import annotations

import hashlib
import hmac
from itertools import count
from typing import Any

import pytest
from support.metadata import cluster, image_of

from controller import acls, client_quotas, delegation_tokens, scram_changes
from controller.delegation_tokens import TokenSettings, token_hmac
from controller.image import MetadataImage
from controller.scram_credentials import SHA_256, salted_password
from protocol.errors import ApiError, ErrorCode
from protocol.messages import alter_client_quotas as quotas
from protocol.messages import alter_user_scram_credentials as scram
from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from protocol.metadata.feature_level_record import FeatureLevelRecord
from protocol.uuids import Uuid

NEW = cluster()


def applied(image: MetadataImage, made: Any) -> MetadataImage:
    return image_of(made.records, image) if made.records else image


# Quotas


def limit(
    image: MetadataImage, entity: dict[str, str | None] | list[tuple[str, str | None]], **values: float | None
) -> tuple[MetadataImage, ErrorCode, str | None]:
    parts = list(entity.items()) if isinstance(entity, dict) else entity
    entry = quotas.EntryData(
        entity=[quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
        ops=[
            quotas.OpData(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in values.items()
        ],
    )
    made = client_quotas.alter_client_quotas(image, quotas.AlterClientQuotasRequest(entries=[entry]))
    answer = made.response.entries[0]
    return applied(image, made), ErrorCode(answer.error_code), answer.error_message


def test_quotas_are_set_changed_and_removed() -> None:
    image, code, _ = limit(NEW, {"user": "ann", "client-id": None}, producer_byte_rate=1000, request_percentage=12.5)
    entity = (("client-id", None), ("user", "ann"))
    assert code is ErrorCode.NONE
    assert image.client_quotas[entity] == {"producer_byte_rate": 1000.0, "request_percentage": 12.5}
    same, _, _ = limit(image, {"client-id": None, "user": "ann"}, producer_byte_rate=1000)
    assert same is image  # nothing changed, nothing is written
    image, _, _ = limit(image, {"user": "ann", "client-id": None}, producer_byte_rate=None, request_percentage=50)
    assert image.client_quotas[entity] == {"request_percentage": 50.0}
    image, _, _ = limit(image, {"user": "ann", "client-id": None}, request_percentage=None, consumer_byte_rate=None)
    assert entity not in image.client_quotas
    image, code, _ = limit(image, {"ip": "10.0.0.1"}, connection_creation_rate=3)
    assert code is ErrorCode.NONE and image.client_quotas[(("ip", "10.0.0.1"),)] == {"connection_creation_rate": 3.0}


@pytest.mark.parametrize(
    ("entity", "values", "sentence"),
    [
        ([], {}, "Invalid empty client quota entity"),
        ([("user", "a"), ("user", "b")], {}, "Invalid client quota entity, duplicate entity entry user"),
        ([("shoe", "a")], {}, "Unhandled client quota entity type: shoe"),
        ([("user", "")], {}, "Empty user not supported"),
        (
            [("user", "a"), ("ip", "1.2.3.4")],
            {},
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        ([("ip", "no host")], {}, "no host is not a valid IP or resolvable host."),
        ([("user", "a")], {"connection_creation_rate": 1}, "Invalid configuration key connection_creation_rate"),
        ([("ip", None)], {"producer_byte_rate": 1}, "Invalid configuration key producer_byte_rate"),
        ([("user", "a")], {"producer_byte_rate": 0}, "Quota producer_byte_rate must be greater than 0"),
        ([("user", "a")], {"producer_byte_rate": 1.5}, "producer_byte_rate cannot be a fractional value."),
        (
            [("user", "a")],
            {"consumer_byte_rate": 1e30},
            "Proposed value for consumer_byte_rate is too large for a LONG.",
        ),
        (
            [("ip", None)],
            {"connection_creation_rate": 1e10},
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
    ],
)
def test_a_quota_that_cannot_be_is_refused(entity: Any, values: dict[str, float], sentence: str) -> None:
    assert limit(NEW, entity, **values) == (NEW, ErrorCode.INVALID_REQUEST, sentence)


def described(image: MetadataImage, *parts: tuple[str, int, str | None], strict: bool = False) -> list[Any]:
    components = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in parts]
    request = DescribeClientQuotasRequest(components=components, strict=strict)
    answer = client_quotas.describe_client_quotas(image, request)
    return sorted(
        [tuple((part.entity_type, part.entity_name) for part in entry.entity) for entry in answer.entries or ()],
        key=str,
    )


def test_quotas_are_found_by_what_an_entity_has() -> None:
    image = NEW
    for entity in ({"user": "ann"}, {"user": None}, {"user": "ann", "client-id": "x"}, {"ip": "1.2.3.4"}):
        key = "connection_creation_rate" if "ip" in entity else "producer_byte_rate"
        image, _, _ = limit(image, entity, **{key: 1})  # type: ignore[arg-type]
    ann, both = (("user", "ann"),), (("client-id", "x"), ("user", "ann"))
    assert described(image, ("user", 0, "ann")) == sorted([ann, both], key=str)
    assert described(image, ("user", 0, "ann"), strict=True) == [ann]
    assert described(image, ("user", 1, None)) == [(("user", None),)]
    assert described(image, ("user", 2, None), ("client-id", 2, None)) == [both]
    assert described(image, strict=True) == [] and len(described(image)) == 4
    for parts, code, sentence in (
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST, "set match string to null"),
        ([("user", 1, "a")], ErrorCode.INVALID_REQUEST, "MATCH_TYPE_DEFAULT, but also"),
        ([("user", 2, "a")], ErrorCode.INVALID_REQUEST, "MATCH_TYPE_SPECIFIED, but also"),
        ([("user", 5, None)], ErrorCode.INVALID_REQUEST, "Unknown match type 5"),
        ([("", 2, None)], ErrorCode.INVALID_REQUEST, "Invalid empty entity type."),
        ([("shoe", 2, None)], ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type shoe."),
        ([("user", 2, None)] * 2, ErrorCode.INVALID_REQUEST, "cannot appear more than once in the filter"),
        ([("user", 2, None), ("ip", 2, None)], ErrorCode.INVALID_REQUEST, "IP filter component should not be used"),
    ):
        with pytest.raises(ApiError) as refused:
            described(image, *parts)
        assert refused.value.code is code and sentence in refused.value.message


# SCRAM


def upsert(name: str, mechanism: int = 1, iterations: int = 4096) -> scram.ScramCredentialUpsertion:
    salted = salted_password(SHA_256, "secret", b"salt", 4096)
    return scram.ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted
    )


def change_users(image: MetadataImage, *changes: Any) -> tuple[MetadataImage, dict[str, tuple[ErrorCode, str | None]]]:
    request = scram.AlterUserScramCredentialsRequest(
        deletions=[change for change in changes if isinstance(change, scram.ScramCredentialDeletion)],
        upsertions=[change for change in changes if isinstance(change, scram.ScramCredentialUpsertion)],
    )
    made = scram_changes.alter_user_scram_credentials(image, request)
    answers = {r.user: (ErrorCode(r.error_code), r.error_message) for r in made.response.results}
    return applied(image, made), answers


def test_a_credential_is_stored_without_the_password() -> None:
    image, answers = change_users(NEW, upsert("ann"))
    stored = image.scram_credentials[(1, "ann")]
    salted = hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 4096)
    assert answers == {"ann": (ErrorCode.NONE, None)}
    assert stored.stored_key == hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    assert stored.server_key == hmac.digest(salted, b"Server Key", "sha256")
    image, answers = change_users(image, scram.ScramCredentialDeletion(name="ann", mechanism=1))
    assert image.scram_credentials == {} and answers["ann"][0] is ErrorCode.NONE


def test_each_user_is_judged_alone() -> None:
    gone = scram.ScramCredentialDeletion(name="gone", mechanism=2)
    twice = scram.ScramCredentialDeletion(name="twice", mechanism=1)
    image, answers = change_users(
        NEW,
        *(upsert("good"), upsert(""), upsert("odd", 9), upsert("few", iterations=4095)),
        *(upsert("many", iterations=16385), upsert("twice"), twice, gone),
    )
    assert list(image.scram_credentials) == [(1, "good")]
    assert answers == {
        "good": (ErrorCode.NONE, None),
        "": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        "odd": (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        "few": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        "many": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        "twice": (ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"),
        "gone": (ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"),
    }
    old = image_of([FeatureLevelRecord(name="metadata.version", feature_level=10)])
    assert change_users(old, upsert("ann"))[1]["ann"][0] is ErrorCode.UNSUPPORTED_VERSION


# ACLs


def acl(name: str = "t", **fields: Any) -> AclCreation:
    values: dict[str, Any] = {
        "resource_type": acls.ResourceType.TOPIC,
        "resource_pattern_type": acls.PatternType.LITERAL,
        "principal": "User:ann",
        "host": "*",
        "operation": acls.AclOperation.READ,
        "permission_type": acls.PermissionType.ALLOW,
        **fields,
    }
    return AclCreation(resource_name=name, **values)


def create(image: MetadataImage, *creations: AclCreation) -> tuple[MetadataImage, list[str | None]]:
    numbers = count(len(image.acls) + 1)
    made = acls.create_acls(
        image, CreateAclsRequest(creations=list(creations)), new_id=lambda: Uuid(bytes([next(numbers)]) * 16)
    )
    return applied(image, made), [result.error_message for result in made.response.results]


def delete(image: MetadataImage, *filters: dict[str, Any]) -> tuple[MetadataImage, list[Any]]:
    whole: dict[str, Any] = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    whole |= dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**{**whole, **asked}) for asked in filters])
    made = acls.delete_acls(image, request)
    answers = [
        r.error_message or sorted(match.resource_name for match in r.matching_acls)
        for r in made.response.filter_results
    ]
    return applied(image, made), answers


def test_an_entry_is_made_once() -> None:
    image, answers = create(NEW, acl(), acl(), acl("u"))
    assert answers == [None, None, None] and sorted(a.resource_name for a in image.acls.values()) == ["t", "u"]
    assert create(image, acl())[0] is image


def test_entries_that_cannot_be_are_refused() -> None:
    image, answers = create(
        NEW,
        *(acl(resource_type=1), acl(resource_pattern_type=2), acl(operation=99), acl(permission_type=1)),
        *(acl(""), acl(principal="ann"), acl("good")),
    )
    assert answers == [
        "Invalid resourceType ANY",
        "Invalid patternType MATCH",
        "Invalid operation UNKNOWN",
        "Invalid permissionType ANY",
        "Resource name should not be empty",
        "Could not parse principal from `ann` (no colon is present separating the principal type from the principal "
        "name)",
        None,
    ]
    assert [a.resource_name for a in image.acls.values()] == ["good"]


def test_entries_are_deleted_by_filters() -> None:
    prefixed = acls.PatternType.PREFIXED
    image, _ = create(NEW, acl("team.a"), acl("team.", resource_pattern_type=prefixed), acl("*"), acl("x", host="h"))
    match = {"resource_name_filter": "team.a", "pattern_type_filter": acls.PatternType.MATCH}
    rest, answers = delete(image, match)
    assert answers == [["*", "team.", "team.a"]] and [a.resource_name for a in rest.acls.values()] == ["x"]
    literal = {"resource_name_filter": "team.a", "pattern_type_filter": acls.PatternType.LITERAL}
    assert delete(image, literal, literal)[1] == [["team.a"], ["team.a"]]
    assert delete(image, {"host_filter": "h"}, {"principal_filter": "User:bob"})[1] == [["x"], []]
    assert delete(image, {"resource_type_filter": 44}, {"operation": 0})[1] == [
        "Unknown patternFilter.",
        "Unknown entryFilter.",
    ]
    assert delete(image, {})[0].acls == {}


# Delegation tokens

SETTINGS = TokenSettings("key", 1000, 300)


def token(image: MetadataImage = NEW, *, now_ms: int = 5000, settings: TokenSettings = SETTINGS, **fields: Any) -> Any:
    request = CreateDelegationTokenRequest(
        renewers=[CreatableRenewers(principal_type="User", principal_name="bob")], **fields
    )
    made = delegation_tokens.create_delegation_token(
        image, request, settings=settings, principal="User:ann", now_ms=now_ms, token_id="T1"
    )
    return applied(image, made), made.response


def renew(image: MetadataImage, period_ms: int, now_ms: int, principal: str = "User:bob", mac: bytes = b"") -> Any:
    request = RenewDelegationTokenRequest(hmac=mac or token_hmac("T1", "key"), renew_period_ms=period_ms)
    made = delegation_tokens.renew_delegation_token(
        image, request, settings=SETTINGS, principal=principal, now_ms=now_ms
    )
    return applied(image, made), ErrorCode(made.response.error_code), made.response.expiry_timestamp_ms


def expire(image: MetadataImage, period_ms: int, now_ms: int, principal: str = "User:ann") -> Any:
    request = ExpireDelegationTokenRequest(hmac=token_hmac("T1", "key"), expiry_time_period_ms=period_ms)
    made = delegation_tokens.expire_delegation_token(
        image, request, settings=SETTINGS, principal=principal, now_ms=now_ms
    )
    return applied(image, made), ErrorCode(made.response.error_code), made.response.expiry_timestamp_ms


def test_a_token_is_made_for_its_owner() -> None:
    image, answer = token(owner_principal_type="User", owner_principal_name="cleo", max_lifetime_ms=500)
    stored = image.delegation_tokens["T1"]
    assert (stored.owner, stored.requester, stored.renewers) == ("User:cleo", "User:ann", ("User:bob",))
    assert (stored.issue_timestamp, stored.expiration_timestamp, stored.max_timestamp) == (5000, 5300, 5500)
    assert answer.hmac == hmac.digest(b"key", b"T1", "sha512") and answer.principal_name == "cleo"
    assert token(max_lifetime_ms=-1)[1].max_timestamp_ms == 6000


def test_a_token_is_renewed_and_ended() -> None:
    image, _ = token()
    image, code, expiry = renew(image, 200, 5250)
    assert code is ErrorCode.NONE and expiry == 5450 == image.delegation_tokens["T1"].expiration_timestamp
    assert renew(image, -1, 5400)[2] == 5700 and renew(renew(image, 0, 5450)[0], 9000, 5750)[2] == 6000
    assert renew(image, 100, 5300, "User:eve")[1] is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert renew(image, 100, 5300, mac=b"forged")[1] is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert renew(image, 100, 5451)[1] is ErrorCode.DELEGATION_TOKEN_EXPIRED
    later, code, expiry = expire(image, 50, 5400)
    assert (code, expiry) == (ErrorCode.NONE, 5450) and "T1" in later.delegation_tokens
    assert expire(image, 50, 5999)[1] is ErrorCode.DELEGATION_TOKEN_EXPIRED
    ended, code, expiry = expire(image, -1, 5999)
    assert (code, expiry) == (ErrorCode.NONE, 5999) and ended.delegation_tokens == {}
    assert delegation_tokens.sweep_expired_tokens(image, now_ms=5450).records == []
    swept = delegation_tokens.sweep_expired_tokens(image, now_ms=5451)
    assert applied(image, swept).delegation_tokens == {} and not swept.response


def test_tokens_need_a_key_and_a_level() -> None:
    assert token(settings=TokenSettings(None, 1, 1))[1].error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    old = image_of([FeatureLevelRecord(name="metadata.version", feature_level=13)])
    assert token(old)[1].error_code == ErrorCode.UNSUPPORTED_VERSION
    request = CreateDelegationTokenRequest(renewers=[CreatableRenewers(principal_type="Group", principal_name="x")])
    made = delegation_tokens.create_delegation_token(
        NEW, request, settings=SETTINGS, principal="User:ann", now_ms=1, token_id="T1"
    )
    assert made.response.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE and made.records == []
