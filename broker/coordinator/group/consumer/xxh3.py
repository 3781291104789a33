"""XXH3, 64 bits, seed 0: the hash with which Kafka 4.1 and later tell whether the metadata of a group changed.

The value is stored in ConsumerGroupMetadata, so it must be the same function as Apache Kafka's. Inputs are a few
hundred bytes per topic and the results are cached, so that plain Python is fast enough.
"""

from __future__ import annotations

from struct import unpack_from
from typing import Final

_MASK: Final = (1 << 64) - 1
_SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_PRIME32_1: Final = 0x9E3779B1
_PRIME32_2: Final = 0x85EBCA77
_PRIME32_3: Final = 0xC2B2AE3D
_PRIME64_1: Final = 0x9E3779B185EBCA87
_PRIME64_2: Final = 0xC2B2AE3D27D4EB4F
_PRIME64_3: Final = 0x165667B19E3779F9
_PRIME64_4: Final = 0x85EBCA77C2B2AE63
_PRIME64_5: Final = 0x27D4EB2F165667C5

_STRIPE: Final = 64
_STRIPES_PER_BLOCK: Final = (len(_SECRET) - _STRIPE) // 8


def xxh3_64(data: bytes) -> int:
    """The hash as a signed 64-bit number, which is how Java and the record hold it."""
    size = len(data)
    if size <= 16:
        value = _short(data, size)
    elif size <= 128:
        value = _up_to_128(data, size)
    elif size <= 240:
        value = _up_to_240(data, size)
    else:
        value = _long(data, size)
    return value - (1 << 64) if value >> 63 else value


def _u64(data: bytes, at: int) -> int:
    return int(unpack_from("<Q", data, at)[0])


def _u32(data: bytes, at: int) -> int:
    return int(unpack_from("<I", data, at)[0])


def _fold(left: int, right: int) -> int:
    product = left * right
    return (product & _MASK) ^ (product >> 64)


def _avalanche(value: int) -> int:
    value ^= value >> 37
    value = (value * 0x165667919E3779F9) & _MASK
    return value ^ (value >> 32)


def _avalanche_64(value: int) -> int:
    value ^= value >> 33
    value = (value * _PRIME64_2) & _MASK
    value ^= value >> 29
    value = (value * _PRIME64_3) & _MASK
    return value ^ (value >> 32)


def _rotl(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & _MASK


def _short(data: bytes, size: int) -> int:
    if size > 8:
        low = _u64(data, 0) ^ (_u64(_SECRET, 24) ^ _u64(_SECRET, 32))
        high = _u64(data, size - 8) ^ (_u64(_SECRET, 40) ^ _u64(_SECRET, 48))
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche((size + swapped + high + _fold(low, high)) & _MASK)
    if size >= 4:
        keyed = (_u32(data, size - 4) + (_u32(data, 0) << 32)) ^ (_u64(_SECRET, 8) ^ _u64(_SECRET, 16))
        keyed ^= _rotl(keyed, 49) ^ _rotl(keyed, 24)
        keyed = (keyed * 0x9FB21C651E98DF25) & _MASK
        keyed ^= (keyed >> 35) + size
        keyed = (keyed * 0x9FB21C651E98DF25) & _MASK
        return keyed ^ (keyed >> 28)
    if size:
        combined = (data[0] << 16) | (data[size >> 1] << 24) | data[size - 1] | (size << 8)
        return _avalanche_64(combined ^ (_u32(_SECRET, 0) ^ _u32(_SECRET, 4)))
    return _avalanche_64(_u64(_SECRET, 56) ^ _u64(_SECRET, 64))


def _mix(data: bytes, at: int, secret_at: int) -> int:
    return _fold(_u64(data, at) ^ _u64(_SECRET, secret_at), _u64(data, at + 8) ^ _u64(_SECRET, secret_at + 8))


def _up_to_128(data: bytes, size: int) -> int:
    total = size * _PRIME64_1
    for pair in range((size - 1) // 32, -1, -1):
        total += _mix(data, 16 * pair, 32 * pair) + _mix(data, size - 16 * (pair + 1), 32 * pair + 16)
    return _avalanche(total & _MASK)


def _up_to_240(data: bytes, size: int) -> int:
    total = size * _PRIME64_1
    for step in range(8):
        total += _mix(data, 16 * step, 16 * step)
    total = _avalanche(total & _MASK)
    for step in range(8, size // 16):
        total += _mix(data, 16 * step, 16 * (step - 8) + 3)
    total += _mix(data, size - 16, 136 - 17)
    return _avalanche(total & _MASK)


def _long(data: bytes, size: int) -> int:
    lanes = [_PRIME32_3, _PRIME64_1, _PRIME64_2, _PRIME64_3, _PRIME64_4, _PRIME32_2, _PRIME64_5, _PRIME32_1]
    block = _STRIPE * _STRIPES_PER_BLOCK
    whole_blocks = (size - 1) // block
    for start in range(0, whole_blocks * block, block):
        for stripe in range(_STRIPES_PER_BLOCK):
            _accumulate(lanes, data, start + stripe * _STRIPE, stripe * 8)
        for lane in range(8):
            value = lanes[lane]
            value ^= value >> 47
            value ^= _u64(_SECRET, len(_SECRET) - _STRIPE + 8 * lane)
            lanes[lane] = (value * _PRIME32_1) & _MASK
    start = whole_blocks * block
    for stripe in range((size - 1 - start) // _STRIPE):
        _accumulate(lanes, data, start + stripe * _STRIPE, stripe * 8)
    _accumulate(lanes, data, size - _STRIPE, len(_SECRET) - _STRIPE - 7)
    total = size * _PRIME64_1
    for pair in range(4):
        total += _fold(
            lanes[2 * pair] ^ _u64(_SECRET, 11 + 16 * pair), lanes[2 * pair + 1] ^ _u64(_SECRET, 19 + 16 * pair)
        )
    return _avalanche(total & _MASK)


def _accumulate(lanes: list[int], data: bytes, at: int, secret_at: int) -> None:
    words = unpack_from("<8Q", data, at)
    keys = unpack_from("<8Q", _SECRET, secret_at)
    for lane in range(8):
        keyed = words[lane] ^ keys[lane]
        lanes[lane ^ 1] = (lanes[lane ^ 1] + words[lane]) & _MASK
        lanes[lane] = (lanes[lane] + (keyed & 0xFFFFFFFF) * (keyed >> 32)) & _MASK
