"""ConsumerGroupDescribe (69), versions 0 and 1 (KIP-848). 1 tells members of the classic protocol apart."""

from __future__ import annotations

from broker.api import RequestContext, handler
from broker.handlers.group.protocols import is_consumer_protocol_enabled
from broker.operations import ALL_ON_GROUP
from protocol.errors import ApiError, ErrorCode
from protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


@handler(ConsumerGroupDescribeRequest)
def consumer_group_describe(
    ctx: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    if is_consumer_protocol_enabled(ctx):
        groups = [_describe(ctx, group_id) for group_id in request.group_ids]
    else:
        groups = [_failed(group_id, ErrorCode.UNSUPPORTED_VERSION) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = ALL_ON_GROUP
    return ConsumerGroupDescribeResponse(groups=groups)


def _describe(ctx: RequestContext, group_id: str) -> DescribedGroup:
    if not group_id:
        return _failed(group_id, ErrorCode.INVALID_GROUP_ID)
    try:
        return ctx.broker.groups.core_of(group_id).consumer_group_describe([group_id])[0]
    except ApiError as error:
        return _failed(group_id, error.code)


def _failed(group_id: str, code: ErrorCode) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=code)
