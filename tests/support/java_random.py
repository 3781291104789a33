"""java.util.Random and Collections.shuffle, bit for bit, behind the methods of Python's that our code uses.

With it a placement of ours can be compared with Kafka's replica by replica, and not only by what they have in common.
"""

from __future__ import annotations

from random import Random
from typing import Any

_MASK = (1 << 48) - 1


class JavaRandom(Random):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._state = (seed ^ 0x5DEECE66D) & _MASK

    def _bits(self, count: int) -> int:
        self._state = (self._state * 0x5DEECE66D + 0xB) & _MASK
        return self._state >> (48 - count)

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        assert stop is None and step == 1, "only a bound, as in nextInt(bound)"
        if start & (start - 1) == 0:
            return (start * self._bits(31)) >> 31
        while True:
            bits = self._bits(31)
            value = bits % start
            if bits - value + (start - 1) < 1 << 31:
                return value

    def shuffle(self, x: Any) -> None:
        for size in range(len(x), 1, -1):
            other = self.randrange(size)
            x[size - 1], x[other] = x[other], x[size - 1]
