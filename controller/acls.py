"""CreateAcls and DeleteAcls over the image: access control entries as records. Enforcing them is the brokers' task."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from controller.image import AclImage, MetadataImage
from controller.outcome import Outcome
from protocol.acl import AclOperation
from protocol.errors import ApiError, ErrorCode
from protocol.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from protocol.metadata.access_control_entry_record import AccessControlEntryRecord
from protocol.metadata.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from protocol.schema import Message
from protocol.uuids import Uuid

MAX_DELETIONS: Final = 10_000  # Kafka's limit of records that one request may cause
WILDCARD: Final = "*"


class ResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """ANY and MATCH are for filters; MATCH finds every pattern that covers the name."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class PermissionType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


E_ = TypeVar("E_", bound=IntEnum)


def _known(kind: type[E_], number: int) -> E_:
    """What this version does not know is UNKNOWN, which is 0 everywhere."""
    return kind(number) if number in kind.__members__.values() else kind(0)


def create_acls(
    image: MetadataImage, request: CreateAclsRequest, *, new_id: Callable[[], Uuid] = Uuid.random
) -> Outcome[CreateAclsResponse]:
    """An entry that is there already is not made again, and that is a success."""
    existing = {_content(acl) for acl in image.acls.values()}
    records: list[Message] = []
    results = []
    for creation in request.creations:
        result = AclCreationResult(error_message=None)
        results.append(result)
        try:
            _check_new(creation)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
            continue
        acl = AclImage(
            id=new_id(),
            resource_type=creation.resource_type,
            resource_name=creation.resource_name,
            pattern_type=creation.resource_pattern_type,
            principal=creation.principal,
            host=creation.host,
            operation=creation.operation,
            permission_type=creation.permission_type,
        )
        if _content(acl) not in existing:
            existing.add(_content(acl))
            records.append(AccessControlEntryRecord(**acl._asdict()))
    return Outcome(records, CreateAclsResponse(results=results))


def _content(acl: AclImage) -> tuple[object, ...]:
    return tuple(acl[1:])


def _check_new(creation: AclCreation) -> None:
    resource = _known(ResourceType, creation.resource_type)
    if resource in (ResourceType.UNKNOWN, ResourceType.ANY):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid resourceType {resource.name}")
    pattern = _known(PatternType, creation.resource_pattern_type)
    if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid patternType {pattern.name}")
    operation = _known(AclOperation, creation.operation)
    if operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid operation {operation.name}")
    permission = _known(PermissionType, creation.permission_type)
    if permission not in (PermissionType.DENY, PermissionType.ALLOW):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid permissionType {permission.name}")
    if not creation.resource_name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Resource name should not be empty")
    if ":" not in creation.principal:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Could not parse principal from `{creation.principal}` (no colon is present separating the principal "
            "type from the principal name)",
        )


class AclFilter(NamedTuple):
    """None and ANY match everything."""

    resource_type: ResourceType
    resource_name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: AclOperation
    permission_type: PermissionType

    @classmethod
    def of(cls, asked: DeleteAclsFilter) -> AclFilter:
        made = cls(
            _known(ResourceType, asked.resource_type_filter),
            asked.resource_name_filter,
            _known(PatternType, asked.pattern_type_filter),
            asked.principal_filter,
            asked.host_filter,
            _known(AclOperation, asked.operation),
            _known(PermissionType, asked.permission_type),
        )
        if made.resource_type is ResourceType.UNKNOWN or made.pattern_type is PatternType.UNKNOWN:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
        if made.operation is AclOperation.UNKNOWN or made.permission_type is PermissionType.UNKNOWN:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")
        return made

    def matches(self, acl: AclImage) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._names(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission_type in (PermissionType.ANY, acl.permission_type)
        )

    def _names(self, acl: AclImage) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.resource_name == acl.resource_name
        if acl.pattern_type == PatternType.PREFIXED:
            return self.resource_name.startswith(acl.resource_name)
        return acl.resource_name in (self.resource_name, WILDCARD)


def delete_acls(image: MetadataImage, request: DeleteAclsRequest) -> Outcome[DeleteAclsResponse]:
    """An entry that several filters match is removed once and shown by each of them."""
    removed: dict[Uuid, AclImage] = {}
    results = []
    for asked in request.filters:
        result = DeleteAclsFilterResult(error_message=None)
        results.append(result)
        try:
            chosen = AclFilter.of(asked)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
            continue
        for acl in image.acls.values():
            if chosen.matches(acl):
                removed[acl.id] = acl
                result.matching_acls.append(
                    DeleteAclsMatchingAcl(
                        error_message=None,
                        resource_type=acl.resource_type,
                        resource_name=acl.resource_name,
                        pattern_type=acl.pattern_type,
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission_type,
                    )
                )
        if len(removed) > MAX_DELETIONS:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Cannot remove more than {MAX_DELETIONS} acls in a single delete operation.",
            )
    records: list[Message] = [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in removed]
    return Outcome(records, DeleteAclsResponse(filter_results=results))
