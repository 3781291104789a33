"""Kafka's UUIDs: sixteen raw bytes on the wire, url-safe base64 without padding in print."""

from __future__ import annotations

import base64
import binascii
import os
from typing import ClassVar

SIZE = 16


class Uuid(bytes):
    """A subclass of bytes, so that it hashes, compares and packs at C speed and can be a dictionary key."""

    ZERO: ClassVar[Uuid]
    __slots__ = ()

    def __new__(cls, raw: bytes | bytearray | memoryview) -> Uuid:
        self = super().__new__(cls, raw)
        if len(self) != SIZE:
            raise ValueError(f"a UUID has {SIZE} bytes, not {len(self)}")
        return self

    @classmethod
    def random(cls) -> Uuid:
        """A version 4 UUID whose text does not start with '-', which command lines take for an option."""
        while True:
            raw = bytearray(os.urandom(SIZE))
            raw[6] = (raw[6] & 0x0F) | 0x40
            raw[8] = (raw[8] & 0x3F) | 0x80
            made = cls(raw)
            if not str(made).startswith("-"):
                return made

    @classmethod
    def parse(cls, text: str) -> Uuid:
        if "+" in text or "/" in text:  # b64decode would take the other alphabet as well
            raise ValueError(f"{text!r} is not a base64 UUID: it has characters of the other base64 alphabet")
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"{text!r} is not a base64 UUID: {error}") from None
        if len(raw) != SIZE:
            raise ValueError(f"{text!r} is not a base64 UUID: it decodes to {len(raw)} bytes, not {SIZE}")
        return cls(raw)

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(self).rstrip(b"=").decode("ascii")

    def __repr__(self) -> str:
        return f"Uuid({self!s})"


def _reserved(number: int) -> Uuid:
    return Uuid(number.to_bytes(SIZE, "big"))


Uuid.ZERO = _reserved(0)

METADATA_TOPIC_ID = _reserved(1)

# Directory ids with a meaning of their own (KIP-858).
DIRECTORY_MIGRATING = _reserved(0)
DIRECTORY_UNASSIGNED = _reserved(1)
DIRECTORY_LOST = _reserved(2)
