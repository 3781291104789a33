"""The codecs of record batches, each in the framing Kafka's clients expect.

Each codec and its library is imported on first use, so that a broker whose topics are stored as they arrive
never loads one. Decompression is bounded by the caller: a batch of a few kilobytes may claim gigabytes.
"""

from __future__ import annotations

from enum import IntEnum
from importlib import import_module
from typing import Protocol, cast

from protocol.errors import DecodeError, EncodeError

Buffer = bytes | bytearray | memoryview


class Compression(IntEnum):
    """Codec numbers as the attributes of a batch carry them."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def config_name(self) -> str:
        """The codec as settings spell it: "none", "gzip", "snappy", "lz4", "zstd"."""
        return self.name.lower()

    @classmethod
    def from_name(cls, name: str) -> Compression:
        """The codec of a setting's value; ValueError for anything else, such as "producer"."""
        for codec in cls:
            if codec.config_name == name:
                return codec
        raise ValueError(f"unknown compression codec {name!r}")


LEVELS: dict[Compression, range] = {
    Compression.GZIP: range(-1, 10),
    Compression.LZ4: range(1, 18),
    Compression.ZSTD: range(-131072, 23),
}
"""Kafka's ranges of `compression.<codec>.level`. For gzip, -1 is the library's default and 0 is refused."""


class _Codec(Protocol):
    def compress(self, data: Buffer, level: int | None) -> bytes: ...

    def decompress(self, data: Buffer, max_size: int) -> bytes: ...


_loaded: dict[Compression, _Codec] = {}


def _codec(codec: Compression) -> _Codec:
    module = _loaded.get(codec)
    if module is None:
        name = f"protocol.compression.{codec.config_name}_codec"
        module = _loaded[codec] = cast(_Codec, import_module(name))
    return module


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """`data` in the codec's framing; `level` is Kafka's setting for that codec, None its default."""
    if codec == Compression.NONE:
        return bytes(data)
    if level is not None:
        allowed = LEVELS.get(codec)
        if allowed is None or level not in allowed or (codec == Compression.GZIP and level == 0):
            raise EncodeError(f"{codec.config_name} has no compression level {level}")
    return _codec(codec).compress(data, level)


def decompress(codec: Compression, data: Buffer, max_size: int) -> bytes:
    """The original bytes; DecodeError if the data is damaged, cut, has a tail, or exceeds `max_size`."""
    if codec == Compression.NONE:
        if len(data) > max_size:
            raise DecodeError(f"the records are larger than {max_size} bytes")
        return bytes(data)
    return _codec(codec).decompress(data, max_size)
