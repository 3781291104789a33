"""DescribeQuorum (55), versions 0 to 2.

1 times of the last fetch and of the last catch-up (KIP-836) · 2 error messages, directory ids and the controllers'
listeners (KIP-853).
"""

from __future__ import annotations

from broker.api import RequestContext, handler
from protocol.errors import ApiError
from protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse


@handler(DescribeQuorumRequest)
def describe_quorum(ctx: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    try:
        return ctx.broker.controller.describe_quorum(request)
    except ApiError as error:
        return DescribeQuorumResponse(error_code=error.code, error_message=error.message or None)
