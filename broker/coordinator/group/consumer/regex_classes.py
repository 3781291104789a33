"""Classes of characters, as far as names of topics can contain them: ASCII.

A class is the set of its ASCII characters. That is all a match of a topic's name can ask for, and it makes negation
and union ordinary operations on sets.
"""

from __future__ import annotations

import string
import unicodedata
from typing import Final

Characters = frozenset[str]

_ALL: Final[Characters] = frozenset(map(chr, range(128)))
_DIGITS: Final[Characters] = frozenset(string.digits)
_LETTERS: Final[Characters] = frozenset(string.ascii_letters)
_WORD: Final[Characters] = _LETTERS | _DIGITS | {"_"}
_SPACE: Final[Characters] = frozenset("\t\n\f\r ")

_PERL: Final = {"d": _DIGITS, "s": _SPACE, "w": _WORD}
_POSIX: Final = {
    "alnum": _LETTERS | _DIGITS,
    "alpha": _LETTERS,
    "ascii": _ALL,
    "blank": frozenset("\t "),
    "cntrl": frozenset(map(chr, (*range(32), 127))),
    "digit": _DIGITS,
    "graph": frozenset(map(chr, range(33, 127))),
    "lower": frozenset(string.ascii_lowercase),
    "print": frozenset(map(chr, range(32, 127))),
    "punct": frozenset(string.punctuation),
    "space": _SPACE | {"\v"},
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}
_CATEGORIES: Final = frozenset(
    ("C", "Cc", "Cf", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd", "Nl", "No", "P",
     "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs")
)  # fmt: skip
_SCRIPTS_WITHOUT_ASCII: Final = frozenset(
    ("Arabic", "Armenian", "Bengali", "Cyrillic", "Devanagari", "Ethiopic", "Georgian", "Greek", "Gujarati",
     "Gurmukhi", "Han", "Hangul", "Hebrew", "Hiragana", "Inherited", "Kannada", "Katakana", "Khmer", "Lao",
     "Malayalam", "Mongolian", "Myanmar", "Oriya", "Sinhala", "Tamil", "Telugu", "Thai", "Tibetan")
)  # fmt: skip


def single(character: str) -> Characters:
    return frozenset((character,)) if character in _ALL else frozenset()


def span(low: str, high: str) -> Characters:
    return frozenset(map(chr, range(ord(low), min(ord(high), 127) + 1)))


def negated(characters: Characters) -> Characters:
    return _ALL - characters


def fold(characters: Characters) -> Characters:
    return frozenset(character.lower() for character in characters) | {character.upper() for character in characters}


def perl_class(letter: str) -> Characters | None:
    made = _PERL.get(letter.lower())
    return None if made is None else negated(made) if letter.isupper() else made


def posix_class(name: str) -> Characters | None:
    return _POSIX.get(name)


def named_class(name: str) -> Characters | None:
    """A category or script of Unicode; None for one that does not exist."""
    if name == "Any":
        return _ALL
    if name == "Latin":
        return _LETTERS
    if name == "Common":
        return negated(_LETTERS)
    if name in _SCRIPTS_WITHOUT_ASCII:
        return frozenset()
    if name in _CATEGORIES:
        return frozenset(character for character in _ALL if unicodedata.category(character).startswith(name))
    return None
