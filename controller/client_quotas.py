"""AlterClientQuotas and DescribeClientQuotas over the image: limits for users, client ids and addresses (KIP-546).

The quotas are kept as records; enforcing them is the brokers' business. An entity is changed as a whole or not at all.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Final

from controller.image import EMPTY, MetadataImage, QuotaEntity
from controller.outcome import Outcome
from protocol.errors import ApiError, ErrorCode
from protocol.messages import describe_client_quotas as describe
from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    ResponseEntryData,
)
from protocol.metadata import client_quota_record as records_of
from protocol.metadata.client_quota_record import ClientQuotaRecord
from protocol.schema import Message

USER, CLIENT_ID, IP = "user", "client-id", "ip"
_TYPES: Final = (USER, CLIENT_ID, IP)
_EXACT, _DEFAULT, _ANY = 0, 1, 2

# Key -> whether it counts in whole numbers, and the largest of them.
_USER_KEYS: Final[Mapping[str, tuple[str, float] | None]] = {
    "producer_byte_rate": ("a LONG", float((1 << 63) - 1)),
    "consumer_byte_rate": ("a LONG", float((1 << 63) - 1)),
    "request_percentage": None,
    "controller_mutation_rate": None,
}
_IP_KEYS: Final[Mapping[str, tuple[str, float] | None]] = {"connection_creation_rate": ("an INT", float((1 << 31) - 1))}
_FRACTION: Final = 1e-6
_HOST_LABEL: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")


def alter_client_quotas(image: MetadataImage, request: AlterClientQuotasRequest) -> Outcome[AlterClientQuotasResponse]:
    records: list[Message] = []
    answers = []
    seen: set[QuotaEntity] = set()
    for entry in request.entries:
        answer = ResponseEntryData(entity=entry.entity, error_message=None)
        try:
            entity = _entity(entry.entity)
            if entity in seen:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {_shown(entity)}")
            seen.add(entity)
            records += _alter(image, entity, entry)
        except ApiError as error:
            answer.error_code, answer.error_message = error.code, error.message or None
        answers.append(answer)
    return Outcome([] if request.validate_only else records, AlterClientQuotasResponse(entries=answers))


def _entity(parts: Sequence[EntityData]) -> QuotaEntity:
    if not parts:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    found: dict[str, str | None] = {}
    for part in parts:
        if part.entity_type in found:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Invalid client quota entity, duplicate entity entry {part.entity_type}",
            )
        if part.entity_type not in _TYPES:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {part.entity_type}")
        if part.entity_name == "":
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Empty {part.entity_type} not supported")
        found[part.entity_type] = part.entity_name
    if IP in found:
        if len(found) > 1:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
            )
        name = found[IP]
        if name is not None and not _is_address(name):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} is not a valid IP or resolvable host.")
    return tuple(sorted(found.items(), key=lambda part: part[0]))


def _is_address(name: str) -> bool:
    """An address, or a name that could be a host's: the answer may not depend on what this node can resolve."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return len(name) <= 253 and all(_HOST_LABEL.fullmatch(label) for label in name.removesuffix(".").split("."))
    return True


def _alter(image: MetadataImage, entity: QuotaEntity, entry: EntryData) -> list[Message]:
    keys = _IP_KEYS if entity[0][0] == IP else _USER_KEYS
    current = image.client_quotas.get(entity, EMPTY)
    records: list[Message] = []
    named: set[str] = set()
    for op in entry.ops:
        if op.key in named:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Duplicate quota key {op.key} not updating quota for this entity {_shown(entity)}",
            )
        named.add(op.key)
        parts = [records_of.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        if op.remove:
            if op.key in current:
                records.append(ClientQuotaRecord(entity=parts, key=op.key, remove=True))
            continue
        _check_value(keys, op.key, op.value)
        if current.get(op.key) != op.value:
            records.append(ClientQuotaRecord(entity=parts, key=op.key, value=op.value))
    return records


def _check_value(keys: Mapping[str, tuple[str, float] | None], key: str, value: float) -> None:
    if key not in keys:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {key}")
    if not value > 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Quota {key} must be greater than 0")
    whole = keys[key]
    if whole is None:
        return
    kind, largest = whole
    if value > largest:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Proposed value for {key} is too large for {kind}.")
    if abs(value % 1.0) > _FRACTION:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{key} cannot be a fractional value.")


def _shown(entity: QuotaEntity) -> str:
    named = ", ".join(f"{kind}={name}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{named}}})"


def describe_client_quotas(
    image: MetadataImage, request: describe.DescribeClientQuotasRequest
) -> describe.DescribeClientQuotasResponse:
    """Entities that have every part asked for; strict ones have no other parts. Raises ApiError."""
    exact, present = _filter(request.components)
    found = []
    for entity, values in image.client_quotas.items():
        parts = dict(entity)
        if request.strict and len(parts) != len(exact) + len(present):
            continue
        if all(kind in parts and parts[kind] == name for kind, name in exact.items()) and present <= parts.keys():
            found.append(
                describe.EntryData(
                    entity=[describe.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                    values=[describe.ValueData(key=key, value=value) for key, value in values.items()],
                )
            )
    return describe.DescribeClientQuotasResponse(error_message=None, entries=found)


def _filter(components: Sequence[describe.ComponentData]) -> tuple[dict[str, str | None], set[str]]:
    exact: dict[str, str | None] = {}
    present: set[str] = set()
    for part in components:
        kind = part.entity_type
        if not kind:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in exact or kind in present:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in _TYPES:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}.")
        if part.match_type == _EXACT:
            if part.match is None:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_EXACT, but set match string to null."
                )
            exact[kind] = part.match
        elif part.match_type in (_DEFAULT, _ANY):
            if part.match is not None:
                name = "DEFAULT" if part.match_type == _DEFAULT else "SPECIFIED"
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"Request specified MATCH_TYPE_{name}, but also specified a match string.",
                )
            if part.match_type == _DEFAULT:
                exact[kind] = None
            else:
                present.add(kind)
        else:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown match type {part.match_type}")
    named = exact.keys() | present
    if IP in named and len(named) > 1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination, IP filter component should not be used with user or "
            "clientId filter component.",
        )
    return exact, present
