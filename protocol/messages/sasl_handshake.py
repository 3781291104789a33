"""SaslHandshake (API key 17): request and response."""

from __future__ import annotations

from protocol.schema import Message, array, int16, string


class SaslHandshakeRequest(Message, key=17, versions="0-1", strict=True):
    mechanism: str = string("0+")


class SaslHandshakeResponse(Message, key=17, versions="0-1"):
    error_code: int = int16("0+")
    mechanisms: list[str] = array(string, "0+")
