"""Envelopes (KIP-590): a client's request as a broker passes it on to the controller, with who asked and from where."""

from __future__ import annotations

import ipaddress
import struct

from broker.api import RequestContext
from protocol.errors import DecodeError
from protocol.header import encode_request, response_header_version
from protocol.messages import response_class
from protocol.messages.default_principal_data import DefaultPrincipalData
from protocol.messages.envelope import EnvelopeRequest
from protocol.schema import Message
from protocol.varint import decode_uvarint

_VERSION = struct.Struct(">h")


def seal(ctx: RequestContext, request: Message) -> EnvelopeRequest:
    """The request with the header it came with, the principal in Kafka's own form, and the client's address."""
    frame = encode_request(
        request.API_KEY, ctx.api_version, ctx.correlation_id, ctx.client_id, request.encode(ctx.api_version)
    )
    return EnvelopeRequest(
        request_data=frame[4:],
        request_principal=encode_principal(ctx.principal),
        client_host_address=_address(ctx.peer),
    )


def open_response(ctx: RequestContext, request: Message, data: bytes) -> Message:
    """The controller's response to what `seal` packed. Raises DecodeError."""
    key, version = request.API_KEY, ctx.api_version
    view = memoryview(data)
    if len(view) < 4 or int.from_bytes(view[:4], "big", signed=True) != ctx.correlation_id:
        raise DecodeError("the response in the envelope is not the one to this request")
    position = 4
    if response_header_version(key, version):
        count, position = decode_uvarint(view, position)
        for _ in range(count):
            _, position = decode_uvarint(view, position)
            size, position = decode_uvarint(view, position)
            position += size
    return response_class(key).decode(data, version, position)


def encode_principal(principal: str) -> bytes:
    kind, _, name = principal.partition(":")
    return _VERSION.pack(0) + DefaultPrincipalData(type=kind, name=name).encode(0)


def decode_principal(data: bytes) -> str:
    """Raises DecodeError for what is not in Kafka's default form."""
    if len(data) < _VERSION.size:
        raise DecodeError("the principal is cut off")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise DecodeError(f"the principal has version {version}")
    principal = DefaultPrincipalData.decode(bytes(data[_VERSION.size :]), 0)
    return f"{principal.type}:{principal.name}"


def _address(peer: str) -> bytes:
    """The bytes of the client's address; of none (a request of this node's own), those of loopback."""
    host = peer.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return ipaddress.IPv4Address("127.0.0.1").packed
