"""DescribeCluster (60), versions 0 to 2.

1 type of the endpoint asked for (KIP-919) · 2 fenced brokers (KIP-1073).
"""

from __future__ import annotations

from broker.api import RequestContext, handler
from broker.endpoints import advertised_endpoint, controller_node
from broker.operations import ALL_ON_CLUSTER, OMITTED
from controller.image import MetadataImage
from protocol.errors import ErrorCode
from protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKER_ENDPOINT = 1
CONTROLLER_ENDPOINT = 2
_NAMES = {BROKER_ENDPOINT: "BROKER", CONTROLLER_ENDPOINT: "CONTROLLER"}


@handler(DescribeClusterRequest)
def describe_cluster(ctx: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """On a controller's listener the nodes are the controllers."""
    on_controller = ctx.listener.name in ctx.broker.config.controller_listener_names
    here = CONTROLLER_ENDPOINT if on_controller else BROKER_ENDPOINT
    if request.endpoint_type not in _NAMES:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    if request.endpoint_type != here:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message=f"The request was sent to an endpoint of type {_NAMES[here]}, but we wanted an endpoint of "
            f"type {_NAMES[request.endpoint_type]}",
        )
    image = ctx.broker.image
    return DescribeClusterResponse(
        endpoint_type=here,
        cluster_id=ctx.broker.cluster_id,
        controller_id=ctx.broker.controller.leader_id if on_controller else controller_node(image, ctx),
        brokers=(_controllers(image, ctx) if on_controller else _brokers(image, ctx, request.include_fenced_brokers)),
        cluster_authorized_operations=ALL_ON_CLUSTER if request.include_cluster_authorized_operations else OMITTED,
    )


def _brokers(image: MetadataImage, ctx: RequestContext, include_fenced: bool) -> list[DescribeClusterBroker]:
    found = []
    for _, registered in sorted(image.brokers.items()):
        node = advertised_endpoint(registered, ctx)
        if node is not None and (include_fenced or not registered.fenced):
            found.append(
                DescribeClusterBroker(
                    broker_id=node.node_id,
                    host=node.host,
                    port=node.port,
                    rack=node.rack,
                    is_fenced=registered.fenced,
                )
            )
    return found


def _controllers(image: MetadataImage, ctx: RequestContext) -> list[DescribeClusterBroker]:
    found = []
    for _, registered in sorted(image.controllers.items()):
        endpoint = registered.endpoints.get(ctx.listener.name)
        if endpoint is not None:
            found.append(DescribeClusterBroker(broker_id=registered.id, host=endpoint.host, port=endpoint.port))
    return found
