"""Regular expressions of subscriptions, judged by RE2/J and by ours."""

from __future__ import annotations

import random

import pytest
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

from broker.coordinator.group.consumer.regex import RegexError, TopicRegex

pytestmark = pytest.mark.stock

NAMES = [
    "a",
    "A",
    "ab",
    "abc",
    "topic-1",
    "topic.2",
    "Topic_3",
    "b.b",
    "a" * 28,
    "0",
    "",
    "x-y_z.0",
]
LETTERS = r"a b . - [ab] [^a] \w \d ( ) | * + ? {2} {1,2} ^ $ (?i) A"
LISTED = r"""
a a|b a* a+? (a+)+b topic.* topic[-.]\d (?i)TOPIC.* [^a] [[:alpha:]]+ [[:^digit:]]+ \pL+ \p{Lu}.* \P{Ll}
\p{Nope} \p{^L} (?:a|b){2,3} a{2 a{,2} a{2,1} a{1001} a{0} x** ** + ( ) (a a) [ [a [] []a] [a-] [z-a] [\d-x] \
a\ \1 \10 \x41 \x{41} \xg \Qa.b\E \Qb.b\E \Qtopic. \C* \bab\b \Ba ^a$ ^^a$$ a^b \Aa\z \Z (?=a)a (?!b)a (?<=a)b
(?<n>a)b (?P<n>a)b (?P<n>a)(?P<n>b) (?P<>a) (?P=n) (?#x) (?i:A)b (?i-i:A)b (?-) (?i-)a (?s).* (?U)a+ (?m)^a$
a++ a*+ a?? a{2}{3} \d+\D* \w+[.]\w+ \s \h \e \_ \- . .. (|a)+ () a||b [a-c-e] [^\w] [\x41-\x{43}]+ [a\]]
(?i)[^A]+ (?i)\x61B \pN \p \p{Latin}+ \07 a{1,} a{01} [[:nope:]]
"""
PATTERNS = ["", *LISTED.split()]


def verdict_of_ours(pattern: str, names: list[str]) -> list[bool] | str:
    try:
        regex = TopicRegex(pattern)
    except RegexError:
        return "invalid"
    return [regex.matches(name) for name in names]


def verdict_of_theirs(jvm: JavaGateway, pattern: str, names: list[str]) -> list[bool] | str:
    try:
        compiled = jvm.jvm.com.google.re2j.Pattern.compile(pattern)
    except Py4JJavaError as error:
        assert "PatternSyntaxException" in str(error.java_exception)
        return "invalid"
    return [compiled.matcher(name).matches() for name in names]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_verdict_is_re2s(jvm: JavaGateway, pattern: str) -> None:
    assert verdict_of_ours(pattern, NAMES) == verdict_of_theirs(jvm, pattern, NAMES)


def test_random_expressions(jvm: JavaGateway) -> None:
    rng = random.Random(11)
    atoms = [
        "a",
        "b",
        ".",
        "-",
        "[ab]",
        "[^a]",
        "\\w",
        "\\d",
        "(",
        ")",
        "|",
        "*",
        "+",
        "?",
        "{2}",
        "{1,2}",
        "^",
        "$",
        "(?i)",
        "A",
    ]
    words = ["".join(rng.choice("abA-0") for _ in range(rng.randint(0, 6))) for _ in range(8)]
    for _ in range(400):
        pattern = "".join(rng.choice(atoms) for _ in range(rng.randint(1, 8)))
        assert verdict_of_ours(pattern, words) == verdict_of_theirs(jvm, pattern, words), pattern
