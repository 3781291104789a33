"""Java properties files, by the rules of ``java.util.Properties.load``.

People bring the files they have, so the corners matter: escapes, continuation lines, the three separators,
and a backslash before any other character, which Java drops.  Line numbers are kept so that an error can
point at the line a setting begins on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from config.errors import ConfigError

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    name: str
    value: str
    line: int


def parse_properties(text: str, file: str) -> list[Property]:
    """Every assignment in the order written; a name may occur more than once, and the last one counts."""
    found = []
    for line, logical in _logical_lines(text):
        key_end, value_start = _split(logical)
        name = _unescape(logical[:key_end], file, line)
        value = _unescape(logical[value_start:], file, line)
        found.append(Property(name, value, line))
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Natural lines joined at their trailing backslash; blank lines and comments left out.

    Only CR, LF and CRLF end a line (``str.splitlines`` knows many more).  A continued line is never a
    comment, even when its continuation begins with ``#``; but a lone backslash continues nothing, so what
    follows it is a new line.  Only at the very end of the text does Java take it for an empty assignment.
    """
    naturals = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    last = len(naturals)
    if not naturals[-1] and not text.endswith("\r\n"):
        last -= 1
    pending = ""
    first = 0
    for number, natural in enumerate(naturals, 1):
        stripped = natural.lstrip(_BLANKS)
        if not pending:
            if not stripped or stripped[0] in "#!":
                continue
            first = number
        backslashes = len(stripped) - len(stripped.rstrip("\\"))
        if backslashes % 2:
            pending += stripped[:-1]
            if number < last:
                continue
        else:
            pending += stripped
        yield first, pending
        pending = ""
        if number == last:
            return
    if pending:
        yield first, pending


def _split(logical: str) -> tuple[int, int]:
    """Where the key ends and the value starts: at the first unescaped ``=``, ``:`` or blank."""
    end = len(logical)
    position = 0
    while position < end:
        char = logical[position]
        if char == "\\":
            position += 2
            continue
        if char in "=:" or char in _BLANKS:
            break
        position += 1
    key_end = min(position, end)
    position = key_end
    while position < end and logical[position] in _BLANKS:
        position += 1
    if position < end and logical[position] in "=:":
        position += 1
        while position < end and logical[position] in _BLANKS:
            position += 1
    return key_end, position


def _unescape(text: str, file: str, line: int) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\" or position == len(text):
            if char != "\\":
                out.append(char)
            continue
        char = text[position]
        position += 1
        if char == "u":
            digits = text[position : position + 4]
            if len(digits) < 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise ConfigError(
                    f"Malformed unicode escape \\u{digits}",
                    file=file,
                    line=line,
                    hint="Write four hexadecimal digits after \\u, or double the backslash.",
                )
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(char, char))
    joined = "".join(out)
    if any("\ud800" <= char <= "\udfff" for char in joined):
        # Java strings are UTF-16: a character beyond the first plane is written as two escapes.
        joined = joined.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return joined
