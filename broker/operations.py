"""The bit fields in which responses list the operations that are permitted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from protocol.acl import AclOperation


def bits(operations: Iterable[AclOperation]) -> int:
    return sum(1 << operation for operation in set(operations))


OMITTED: Final = -2147483648
"""The field's value where the client did not ask for the operations."""

ALL_ON_TOPIC: Final = bits(
    (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    )
)
ALL_ON_CLUSTER: Final = bits(
    (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    )
)
ALL_ON_GROUP: Final = bits(
    (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    )
)
