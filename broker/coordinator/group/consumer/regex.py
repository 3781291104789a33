"""Regular expressions for topic subscriptions: RE2's language, matched in time linear in the topic's name.

Kafka uses RE2/J because a subscription comes from a client and must not be able to stall the broker. Python's own
`re` backtracks, so an expression like (a+)+b could stall it for hours; and it knows another language. Here an
expression is parsed (`regex_parser.py`) to a nondeterministic automaton, which is then run with the sets of states
remembered as they come up. Only whole names are matched, so groups capture nothing and laziness does not matter.

Differences from RE2/J: scripts as classes (\\p{Greek}) are known by name only as far as letters of topic names are
concerned, which are ASCII.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from broker.coordinator.group.consumer.regex_parser import Edge, Look, Program, RegexError, parse

__all__ = ["RegexError", "TopicRegex"]

_MAX_REMEMBERED = 10_000
"""Steps kept per expression; names of topics share most of them. An expression that needs more starts afresh."""

_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")

States = frozenset[int]


class TopicRegex:
    """RegexError for an expression that RE2 would not take."""

    __slots__ = ("_program", "_steps")

    def __init__(self, pattern: str) -> None:
        self._program: Program = parse(pattern)
        self._steps: dict[tuple[States, str | None, str | None], States] = {}

    def matches(self, name: str) -> bool:
        """Whether the expression matches all of the name."""
        states: States = frozenset((self._program.start,))
        before: str | None = None
        for character in name:
            states = self._step(states, before, character)
            if not states:
                return False
            before = character
        return self._program.end in self._step(states, before, None)

    def matching(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(name for name in names if self.matches(name))

    def _step(self, states: States, before: str | None, character: str | None) -> States:
        """The states after the character; at the end of the name, all that can be reached without one."""
        key = (states, before, character)
        after = self._steps.get(key)
        if after is None:
            if len(self._steps) >= _MAX_REMEMBERED:
                self._steps.clear()
            reached = self._reachable(states, before, character)
            after = frozenset(reached) if character is None else frozenset(self._consume(reached, character))
            self._steps[key] = after
        return after

    def _consume(self, states: Iterable[int], character: str) -> Iterator[int]:
        for state in states:
            for edge in self._program.edges[state]:
                if edge.characters is not None and character in edge.characters:
                    yield edge.target

    def _reachable(self, states: Iterable[int], before: str | None, after: str | None) -> set[int]:
        reached = set(states)
        pending = list(reached)
        while pending:
            for edge in self._program.edges[pending.pop()]:
                if edge.characters is None and edge.target not in reached and _holds(edge, before, after):
                    reached.add(edge.target)
                    pending.append(edge.target)
        return reached


def _holds(edge: Edge, before: str | None, after: str | None) -> bool:
    look = edge.look
    if look is None:
        return True
    if look is Look.TEXT_START:
        return before is None
    if look is Look.TEXT_END:
        return after is None
    if look is Look.LINE_START:
        return before is None or before == "\n"
    if look is Look.LINE_END:
        return after is None or after == "\n"
    at_boundary = (before is not None and before in _WORD) != (after is not None and after in _WORD)
    return at_boundary == (look is Look.WORD_BOUNDARY)
