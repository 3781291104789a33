"""Which partition of `__consumer_offsets` owns a group. It must be Kafka's choice: the data may come from Kafka."""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_SIGN = 0x80000000


def java_hash(text: str) -> int:
    """Java's String.hashCode: 32 bits with wrap-around, over UTF-16 code units (a surrogate pair counts twice)."""
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (31 * value + unit) & _MASK
    else:
        encoded = text.encode("utf-16-be", "surrogatepass")
        for position in range(0, len(encoded), 2):
            value = (31 * value + (encoded[position] << 8 | encoded[position + 1])) & _MASK
    return value - 2 * _SIGN if value & _SIGN else value


def java_index(value: int, count: int) -> int:
    """The absolute value in 32 bits, modulo `count`; the smallest integer, which has none in Java, counts as 0."""
    value &= _MASK
    if value & _SIGN:
        value = 0 if value == _SIGN else 2 * _SIGN - value
    return value % count


def partition_for(group_id: str, partitions: int) -> int:
    return java_index(java_hash(group_id), partitions)
