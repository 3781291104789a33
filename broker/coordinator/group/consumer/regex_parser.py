"""The language of RE2, parsed to an automaton. Errors are named as RE2/J names them: clients see them."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final, NamedTuple

from broker.coordinator.group.consumer.regex_classes import (
    Characters,
    fold,
    named_class,
    negated,
    perl_class,
    posix_class,
    single,
    span,
)

_MAX_REPEAT: Final = 1000
"""RE2's limit for {n,m}; the size of the automaton is bounded with it."""
_MAX_STATES: Final = 20_000
"""Of nested repetitions only the product is bounded: RE2 has a limit of memory here, of about this size."""
_MAX_DEPTH: Final = 200


class RegexError(Exception):
    """``str()`` is what RE2/J says of the expression."""


class Look(Enum):
    TEXT_START = auto()
    TEXT_END = auto()
    LINE_START = auto()
    LINE_END = auto()
    WORD_BOUNDARY = auto()
    NO_WORD_BOUNDARY = auto()


class Edge(NamedTuple):
    """Taken with one of the characters, or without one if ``look`` (where there is one) holds here."""

    target: int
    characters: Characters | None = None
    look: Look | None = None


class Program(NamedTuple):
    edges: list[list[Edge]]
    start: int
    end: int


class _Flags(NamedTuple):
    ignore_case: bool = False
    multi_line: bool = False
    dot_newline: bool = False


Node = Callable[[int, int], None]
"""Adds edges and states that lead from the first state to the second by what it matches."""


def parse(pattern: str) -> Program:
    return _Parser(pattern).program()


class _Parser:
    __slots__ = ("_at", "_depth", "_edges", "_flags", "_names", "_text")

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._depth = 0
        self._flags = _Flags()
        self._names: set[str] = set()
        self._edges: list[list[Edge]] = []

    def program(self) -> Program:
        node = self._alternatives()
        if self._at < len(self._text):
            raise RegexError("unexpected )")
        start, end = self._state(), self._state()
        node(start, end)
        return Program(self._edges, start, end)

    def _state(self) -> int:
        if len(self._edges) >= _MAX_STATES:
            raise RegexError("expression nests too deeply")
        self._edges.append([])
        return len(self._edges) - 1

    def _peek(self, token: str) -> bool:
        return self._text.startswith(token, self._at)

    def _take(self, token: str) -> bool:
        if not self._peek(token):
            return False
        self._at += len(token)
        return True

    def _next(self) -> str:
        character = self._text[self._at]
        self._at += 1
        return character

    # --- structure --------------------------------------------------------------------------------------------------

    def _alternatives(self) -> Node:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        if len(branches) == 1:
            return branches[0]

        def build(start: int, end: int) -> None:
            for branch in branches:
                branch(start, end)

        return build

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._at < len(self._text) and not self._peek("|") and not self._peek(")"):
            if self._take("\\Q"):
                end = self._text.find("\\E", self._at)
                literal = self._text[self._at :] if end < 0 else self._text[self._at : end]
                self._at = len(self._text) if end < 0 else end + 2
                parts.extend(self._one_of(single(character)) for character in literal)
                if parts:
                    parts[-1] = self._repeated(parts[-1])
                continue
            atom = self._atom()
            if atom is not None:
                parts.append(self._repeated(atom))
            elif parts:  # after (?i) a repetition is still that of what stands before it
                parts[-1] = self._repeated(parts[-1])

        def build(start: int, end: int) -> None:
            here = start
            for part in parts[:-1]:
                there = self._state()
                part(here, there)
                here = there
            if parts:
                parts[-1](here, end)
            else:
                self._edges[here].append(Edge(end))

        return build

    def _repeated(self, atom: Node) -> Node:
        before = self._at
        bounds = self._bounds()
        if bounds is None:
            return atom
        self._take("?")  # lazy: the same words match
        operator = self._text[before : self._at]
        after = self._at
        if self._bounds() is not None:
            raise RegexError(f"invalid nested repetition operator: `{operator}{self._text[after : self._at]}`")
        least, most = bounds

        def build(start: int, end: int) -> None:
            here = start
            for _ in range(least):
                there = self._state()
                atom(here, there)
                here = there
            if most is None:
                loop, out = self._state(), self._state()
                self._edges[here].append(Edge(loop))
                atom(loop, out)
                self._edges[out].append(Edge(loop))
                self._edges[loop].append(Edge(end))
                return
            for _ in range(most - least):
                self._edges[here].append(Edge(end))
                there = self._state()
                atom(here, there)
                here = there
            self._edges[here].append(Edge(end))

        return build

    def _bounds(self) -> tuple[int, int | None] | None:
        """The repetition operator here, if there is one. What is not a whole {n,m} is an ordinary brace."""
        if self._take("*"):
            return 0, None
        if self._take("+"):
            return 1, None
        if self._take("?"):
            return 0, 1
        if not self._peek("{"):
            return None
        close = self._text.find("}", self._at)
        given = self._text[self._at + 1 : close] if close > 0 else ""
        low, comma, high = given.partition(",")
        if not _is_number(low) or (high and not _is_number(high)):
            return None
        least = int(low)
        most = least if not comma else int(high) if high else None
        if least > _MAX_REPEAT or (most is not None and not least <= most <= _MAX_REPEAT):
            raise RegexError(f"invalid repetition size: `{{{given}}}`")
        self._at = close + 1
        return least, most

    # --- atoms ------------------------------------------------------------------------------------------------------

    def _one_of(self, characters: Characters) -> Node:
        wanted = fold(characters) if self._flags.ignore_case else characters

        def build(start: int, end: int) -> None:
            self._edges[start].append(Edge(end, characters=wanted))

        return build

    def _looking(self, look: Look) -> Node:
        def build(start: int, end: int) -> None:
            self._edges[start].append(Edge(end, look=look))

        return build

    def _atom(self) -> Node | None:
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return self._one_of(self._bracket())
        if character == ".":
            return self._one_of(negated(single("\n") if not self._flags.dot_newline else frozenset()))
        if character == "^":
            return self._looking(Look.LINE_START if self._flags.multi_line else Look.TEXT_START)
        if character == "$":
            return self._looking(Look.LINE_END if self._flags.multi_line else Look.TEXT_END)
        if character in "*+?":
            raise RegexError(f"missing argument to repetition operator: `{character}`")
        if character == "{":
            self._at -= 1
            if self._bounds() is not None:
                raise RegexError("missing argument to repetition operator: `{`")
            self._at += 1
        if character == "\\":
            return self._escape()
        return self._one_of(single(character))

    def _escape(self) -> Node:
        if self._at >= len(self._text):
            raise RegexError("trailing backslash at end of expression: ``")
        looks = {"A": Look.TEXT_START, "z": Look.TEXT_END, "b": Look.WORD_BOUNDARY, "B": Look.NO_WORD_BOUNDARY}
        look = looks.get(self._text[self._at])
        if look is not None:
            self._at += 1
            return self._looking(look)
        return self._one_of(self._class_escape() or single(self._character_escape()))

    def _group(self) -> Node | None:
        outer = self._flags
        if self._take("?"):
            if self._take("P<") or self._take("<"):
                self._group_name()
            elif self._set_flags():
                return None  # (?i): from here to the end of the enclosing group
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise RegexError("expression nests too deeply")
        node = self._alternatives()
        if not self._take(")"):
            raise RegexError(f"missing closing ): `{self._text}`")
        self._depth -= 1
        self._flags = outer
        return node

    def _group_name(self) -> None:
        close = self._text.find(">", self._at)
        name = self._text[self._at : close] if close >= 0 else ""
        if not name or not all(character.isalnum() or character == "_" for character in name):
            raise RegexError(f"invalid named capture: `{self._text[self._at - 2 :]}`")
        if name in self._names:
            raise RegexError(f"duplicate capture group name: `{name}`")
        self._names.add(name)
        self._at = close + 1

    def _set_flags(self) -> bool:
        """Whether the group ended with its flags. Look-arounds and the like fall through to the error."""
        begin, value, changed = self._at, True, False
        flags = self._flags._asdict()
        while self._at < len(self._text):
            character = self._next()
            if character in "imsU":
                changed = True
                name = {"i": "ignore_case", "m": "multi_line", "s": "dot_newline"}.get(character)
                if name is not None:
                    flags[name] = value
            elif character == "-" and value:
                value, changed = False, False
            elif character in ":)" and (value or changed):
                self._flags = _Flags(**flags)
                return character == ")"
            else:
                break
        raise RegexError(f"invalid or unsupported Perl syntax: `(?{self._text[begin : self._at]}`")

    # --- classes ----------------------------------------------------------------------------------------------------

    def _class_escape(self) -> Characters | None:
        """The class after a backslash (\\d, \\pL), or None where it is one character."""
        character = self._text[self._at]
        made = perl_class(character)
        if made is not None:
            self._at += 1
            return made
        if character not in "pP":
            return None
        begin = self._at
        self._at += 1
        if self._take("{"):
            close = self._text.find("}", self._at)
            name = self._text[self._at : close] if close >= 0 else ""
            self._at = close + 1 if close >= 0 else len(self._text)
        else:
            name = self._text[self._at : self._at + 1]
            self._at += 1
        is_negated = (character == "P") != name.startswith("^")
        found = named_class(name.removeprefix("^"))
        if found is None:
            raise RegexError(f"invalid character class range: `\\{self._text[begin : self._at]}`")
        return negated(found) if is_negated else found

    def _character_escape(self) -> str:
        begin = self._at
        character = self._next()
        if character in "01234567":
            # RE2 has no back-references: a digit is octal, and a lone one that is not 0 is an error.
            digits = character
            while len(digits) < 3 and self._text[self._at : self._at + 1] in tuple("01234567"):
                digits += self._next()
            if character != "0" and len(digits) == 1:
                raise RegexError(f"invalid escape sequence: `\\{digits}`")
            return chr(int(digits, 8))
        if character == "x":
            if self._take("{"):
                close = self._text.find("}", self._at)
                digits = self._text[self._at : close] if close >= 0 else ""
                self._at = close + 1
            else:
                digits = self._text[self._at : self._at + 2]
                self._at += 2
                if len(digits) < 2:
                    digits = ""
            if digits and all(digit in "0123456789abcdefABCDEF" for digit in digits) and int(digits, 16) <= 0x10FFFF:
                return chr(int(digits, 16))
        else:
            control = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}.get(character)
            if control is not None:
                return control
            if ord(character) < 0x80 and not character.isalnum():
                return character
        raise RegexError(f"invalid escape sequence: `\\{self._text[begin : self._at]}`")

    def _bracket(self) -> Characters:
        begin = self._at - 1
        is_negated = self._take("^")
        members: Characters = frozenset()
        is_first = True
        while is_first or not self._peek("]"):
            if self._at >= len(self._text):
                raise RegexError(f"missing closing ]: `{self._text[begin:]}`")
            is_first = False
            if self._peek("[:"):
                made = self._posix()
                if made is not None:
                    members |= made
                    continue
            if self._peek("\\") and self._at + 1 < len(self._text):
                self._at += 1
                escaped = self._class_escape()
                if escaped is not None:
                    members |= escaped
                    continue
                self._at -= 1
            low = self._bracket_character(begin)
            high = low
            if self._peek("-") and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._bracket_character(begin)
                if high < low:
                    raise RegexError(f"invalid character class range: `{low}-{high}`")
            members |= span(low, high)
        self._at += 1
        if is_negated:
            members = negated(fold(members) if self._flags.ignore_case else members)
        return members

    def _bracket_character(self, begin: int) -> str:
        if self._at >= len(self._text):
            raise RegexError(f"missing closing ]: `{self._text[begin:]}`")
        character = self._next()
        if character != "\\":
            return character
        if self._at >= len(self._text):
            raise RegexError("trailing backslash at end of expression: ``")
        return self._character_escape()

    def _posix(self) -> Characters | None:
        close = self._text.find(":]", self._at + 2)
        if close < 0:
            return None
        name = self._text[self._at + 2 : close]
        made = posix_class(name.removeprefix("^"))
        if made is None:
            raise RegexError(f"invalid character class range: `[:{name}:]`")
        self._at = close + 2
        return negated(made) if name.startswith("^") else made


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and (text == "0" or not text.startswith("0"))
