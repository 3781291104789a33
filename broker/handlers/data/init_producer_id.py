"""InitProducerId (22), versions 0 to 5.

2 flexible · 3 a producer may ask to keep its id with a new epoch (KIP-360) · 4 and 5 new error codes (KIP-890).
Idempotent producers get an id of their own; transactional ones need a coordinator, which FindCoordinator
does not offer them yet.
"""

from __future__ import annotations

from broker.api import RequestContext, handler
from protocol.errors import ApiError, ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NO_ID = -1


@handler(InitProducerIdRequest)
async def init_producer_id(ctx: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if (request.producer_id == NO_ID) != (request.producer_epoch == NO_ID):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=NO_ID)
    if request.transactional_id is not None:
        code = ErrorCode.INVALID_REQUEST if not request.transactional_id else ErrorCode.COORDINATOR_NOT_AVAILABLE
        return InitProducerIdResponse(error_code=code, producer_epoch=NO_ID)
    try:
        producer_id = await ctx.broker.producer_ids.next()
    except ApiError as error:
        return InitProducerIdResponse(error_code=error.code, producer_epoch=NO_ID)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
