"""DefaultPrincipalData: carried inside other messages or records."""

from __future__ import annotations

from protocol.schema import Message, boolean, string


class DefaultPrincipalData(Message, versions="0", flexible="0+", strict=True):
    type: str = string("0+")
    name: str = string("0+")
    token_authenticated: bool = boolean("0+")
