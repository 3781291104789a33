"""ConsumerGroupRegularExpression (record type 16): key and value as a coordinator stores them."""

from __future__ import annotations

from protocol.schema import Message, array, int64, string


class ConsumerGroupRegularExpressionKey(Message, key=16, versions="0", strict=True):
    group_id: str = string("0")
    regular_expression: str = string("0")


class ConsumerGroupRegularExpressionValue(Message, key=16, versions="0", flexible="0+", strict=True):
    topics: list[str] = array(string, "0+")
    version: int = int64("0+")
    timestamp: int = int64("0+")
