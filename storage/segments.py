"""The segments of one log, in the order of their base offsets."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from storage.segment import Segment


class Segments:
    """A sorted list and nothing more. Never empty once the log is open; only the last segment is written."""

    __slots__ = ("_bases", "_items")

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._items: list[Segment] = []

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._items)

    def __contains__(self, base_offset: int) -> bool:
        at = bisect_left(self._bases, base_offset)
        return at < len(self._bases) and self._bases[at] == base_offset

    @property
    def active(self) -> Segment:
        return self._items[-1]

    @property
    def first(self) -> Segment:
        return self._items[0]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._items)

    @property
    def base_offsets(self) -> list[int]:
        return list(self._bases)

    def add(self, segment: Segment) -> None:
        if self._bases and segment.base_offset <= self._bases[-1]:
            raise ValueError(f"{segment} does not follow offset {self._bases[-1]}")
        self._bases.append(segment.base_offset)
        self._items.append(segment)

    def remove(self, segment: Segment) -> None:
        at = bisect_left(self._bases, segment.base_offset)
        del self._bases[at], self._items[at]

    def floor(self, offset: int) -> Segment | None:
        """The segment that holds `offset`, or would if it were written."""
        bases = self._bases
        if bases and offset >= bases[-1]:  # readers of the tail need no search
            return self._items[-1]
        at = bisect_right(bases, offset)
        return self._items[at - 1] if at else None

    def after(self, segment: Segment) -> Segment | None:
        at = bisect_right(self._bases, segment.base_offset)
        return self._items[at] if at < len(self._items) else None

    def covering(self, start_offset: int) -> list[Segment]:
        """The segment that holds `start_offset` and all later ones."""
        return self._items[max(0, bisect_right(self._bases, start_offset) - 1) :]
