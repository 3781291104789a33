"""Requests that are almost right: plausible requests of every served API, then damaged. All from one seed."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from protocol.compression import Compression
from protocol.header import encode_request
from protocol.messages import request_class
from protocol.records import Record, build_batch
from protocol.schema import Field, Message, Struct
from protocol.uuids import Uuid

TOPIC = "fuzz"
"""Exists, so that requests reach the log and not only the look-up of a topic."""

# Values with which a request gets past the first check of its handler. Other fields are drawn at random.
_PLAUSIBLE_STRINGS = (TOPIC, TOPIC, TOPIC, "absent", "", "a b", "..", "x" * 249, "1", "cleanup.policy", "compact")
_PLAUSIBLE_INTS = (0, 0, 0, 1, 1, -1, 2, 3, 100, -2, -3, 2**31 - 1)
_LENGTH_LIES = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x80\0\0\0", b"\x7f\xff", b"\x80\0", b"\0\xff")
_VARINT_BOMBS = (b"\xff" * 5, b"\xff" * 64, b"\x80" * 12, b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07")
_DELETE_TOPICS = 20
_DELETE_KEY = struct.pack(">h", _DELETE_TOPICS)
_WAITS = frozenset(("max_wait_ms", "timeout_ms"))


@dataclass(frozen=True)
class Damaged:
    """What goes over the wire, and whether a server may wait for more after it."""

    data: bytes
    is_open_ended: bool
    description: str


class RequestMaker:
    """Draws valid requests.

    `versions` is what the server said it serves: API key to lowest and highest version. `topic_id` is that of TOPIC,
    which is never deleted: requests about nothing would end at the first look-up.
    """

    def __init__(self, rng: random.Random, versions: dict[int, tuple[int, int]], topic_id: Uuid) -> None:
        self.rng = rng
        self.versions = versions
        self.topic_id = topic_id
        self._spares_topic = False
        self._batches = [self._batch(codec) for codec in Compression]

    def _batch(self, codec: Compression) -> bytes:
        records = [Record(0, 1_700_000_000_000 + i, b"key", b"value %d" % i, ()) for i in range(5)]
        return bytes(build_batch(records, compression=codec))

    def request(self) -> tuple[int, int, bytes]:
        """API key, version and encoded body. Each API and version is drawn equally often."""
        key = self.rng.choice(sorted(self.versions))
        self._spares_topic = key == _DELETE_TOPICS
        declared = request_class(key)
        lowest, highest = self.versions[key]
        version = self.rng.randint(max(lowest, declared.MIN_VERSION), highest)
        message = self._struct(declared, version)
        assert isinstance(message, Message)
        return key, version, message.encode(version)

    def frame(self) -> bytes:
        key, version, body = self.request()
        return encode_request(key, version, self.rng.getrandbits(31), self.rng.choice(("fuzz", "", None)), body)

    def _struct(self, declared: type[Struct], version: int) -> Struct:
        values = {
            field.name: self._value(field, version)
            for field in declared.FIELDS
            if version in field.versions and (field.tag is None or self.rng.random() < 0.5)
        }
        return declared(**values)

    def _value(self, field: Field, version: int) -> Any:
        if version in field.nullable and self.rng.random() < 0.1:
            return None
        if field.is_array:
            return [self._element(field, version) for _ in range(self.rng.choice((0, 1, 1, 2)))]
        return self._element(field, version)

    def _element(self, field: Field, version: int) -> Any:
        rng = self.rng
        if field.struct is not None:
            return self._struct(field.struct, version)
        assert field.kind is not None
        kind = field.kind
        if kind.name == "records":
            return rng.choice(self._batches)
        if kind.name == "string":
            return "absent" if self._spares_topic else rng.choice(_PLAUSIBLE_STRINGS)
        if kind.name == "bytes":
            return rng.randbytes(rng.randrange(20))
        if kind.name == "boolean":
            # Topics that really come into being would be honest growth.
            return True if field.name == "validate_only" else rng.random() < 0.5
        if kind.name == "uuid":
            if self._spares_topic or rng.random() < 0.2:
                return Uuid(rng.randbytes(16))
            return self.topic_id if rng.random() < 0.8 else Uuid.ZERO
        if kind.name == "float64":
            return rng.random()
        if field.name in _WAITS:
            return rng.choice((0, 1, 5))
        value = rng.choice(_PLAUSIBLE_INTS)
        unsigned = kind.name.startswith("u")
        limit = 2 ** (8 * kind.size - (0 if unsigned else 1)) - 1
        return min(max(value, 0) if unsigned else value, limit)


class Mutator:
    """Damages frames in the ways that parsers fear."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._ways: tuple[Callable[[bytes], Damaged], ...] = (
            self.flip_bits,
            self.flip_bits,
            self.truncate,
            self.length_lie,
            self.inner_length_lie,
            self.varint_bomb,
            self.splice,
            self.random_body,
        )

    def damage(self, frame: bytes) -> Damaged:
        """Never turns another request into DeleteTopics: without its topic the rest of a run would test little."""
        while True:
            damaged = self.rng.choice(self._ways)(frame)
            if damaged.data[4:6] != _DELETE_KEY or frame[4:6] == _DELETE_KEY:
                return damaged

    @staticmethod
    def _framed(body: bytes, description: str) -> Damaged:
        return Damaged(struct.pack(">i", len(body)) + body, False, description)

    def _position(self, frame: bytes) -> int:
        """Mostly behind API key and version, or hardly any request would reach its decoder."""
        lowest = 8 if self.rng.random() < 0.9 else 4
        return self.rng.randrange(min(lowest, len(frame) - 1), len(frame))

    def flip_bits(self, frame: bytes) -> Damaged:
        body = bytearray(frame)
        for _ in range(self.rng.choice((1, 1, 2, 8))):
            body[self._position(frame)] ^= 1 << self.rng.randrange(8)
        return self._framed(bytes(body[4:]), "bits flipped")

    def truncate(self, frame: bytes) -> Damaged:
        return self._framed(frame[4 : self._position(frame)], "cut, with the length of what is left")

    def length_lie(self, frame: bytes) -> Damaged:
        length = len(frame) - 4 + self.rng.choice((1, 5, 1000, 10**6, 90 * 10**6, -1, -3))
        if self.rng.random() < 0.3:
            length = self.rng.choice((-1, -(2**31), 2**31 - 1, 101 * 2**20, 0))
        return Damaged(struct.pack(">i", length) + frame[4:], True, f"frame length {length}")

    def inner_length_lie(self, frame: bytes) -> Damaged:
        body = bytearray(frame)
        lie = self.rng.choice(
            (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x80\0\0\0", b"\x7f\xff", b"\x80\0", b"\0\xff")
        )
        at = self._position(frame)
        body[at : at + len(lie)] = lie
        return self._framed(bytes(body[4:]), "a length inside the message")

    def varint_bomb(self, frame: bytes) -> Damaged:
        at = self._position(frame)
        bomb = self.rng.choice(
            (b"\xff" * 5, b"\xff" * 64, b"\x80" * 12, b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07")
        )
        keep = self.rng.choice((at, at + len(bomb), at + 1))
        return self._framed(frame[4:at] + bomb + frame[keep:], "varint bomb")

    def splice(self, frame: bytes) -> Damaged:
        first, second = sorted((self._position(frame), self._position(frame)))
        return self._framed(frame[4:second] + frame[first:], "a piece doubled")

    def random_body(self, frame: bytes) -> Damaged:
        return self._framed(frame[4:12] + self.rng.randbytes(self.rng.randrange(200)), "random body")
