"""The properties parser: Java's rules, line numbers, and a comparison with java.util.Properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.java_gateway import JavaGateway

from config.errors import ConfigError
from config.properties import parse_properties

CORNERS = [
    "",
    "a=b",
    "a = b",
    "a:b",
    "a b",
    "a\tb",
    "a\fb",
    "a",
    "a=",
    "=b",
    ":b",
    " = b",
    "a==b",
    "a=:b",
    "a : = b",
    "a = b  ",
    "  a=b",
    "# comment\na=b",
    "! comment\na=b",
    "a=b # not a comment",
    "a=b\\\n  c",
    "a=b\\\r\n  c",
    "a=b\\\n# not a comment",
    "a=b\\\n\nc=d",
    "a=b\\\\\nc=d",
    "a=b\\\\\\\nc=d",
    "a=b\\",
    "a\\=b=c",
    "a\\ b=c",
    "a\\:b c",
    "a=\\t\\n\\r\\f\\q\\\\",
    "a=\\u00e9\\u20ac",
    "a=\\ud83d\\ude00",
    "a=1\na=2",
    "a=b\rc=d",
    "a=b\r\nc=d",
    "a=b\n\n\n  \t\n#x\nc=d\n",
    "\\u0061=b",
    "a=\x85b",
    "a=\x1cb",
    "\\",
    "\\\n",
    "a=\\\n   b",
    "a\\\n=b",
    "a\\\n   b c",
    "a=b\\\n",
    "a=b\\\n   ",
    "# comment\\\na=b",
    "log.dirs=C:\\\\kafka\\\\data",
]


def parsed(text: str) -> dict[str, str]:
    return {name: value for name, value, _ in parse_properties(text, "test.properties")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a : b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a", {"a": ""}),
        ("a = b  ", {"a": "b  "}),
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a\\=b = c", {"a=b": "c"}),
        ("a=\\u20ac", {"a": "\u20ac"}),
        ("a=\\ud83d\\ude00", {"a": "\U0001f600"}),
        ("a=1\na=2", {"a": "2"}),
        ("# a=1\n! b=2", {}),
    ],
)
def test_assignments(text: str, expected: dict[str, str]) -> None:
    assert parsed(text) == expected


def test_lines_are_those_a_setting_begins_on() -> None:
    text = "# one\n\na=b\nc=d\\\n  e\nf=g\r\nh=i"
    assert [(name, line) for name, _, line in parse_properties(text, "x")] == [
        ("a", 3),
        ("c", 4),
        ("f", 6),
        ("h", 7),
    ]


@pytest.mark.parametrize("text", ["x=1\na=\\u12", "x=1\na=\\u12g4", "x=1\na=\\u"])
def test_a_broken_unicode_escape_names_file_and_line(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_properties(text, "my.properties")
    assert (caught.value.file, caught.value.line) == ("my.properties", 2)
    assert str(caught.value).startswith("my.properties, line 2: Malformed unicode escape")


@given(st.dictionaries(st.text("ab =:#!\\\n\t", min_size=1), st.text("xy =:#!\\\n\t")))
def test_escaped_text_comes_back(pairs: dict[str, str]) -> None:
    """What is written with every special character escaped reads back as it was."""

    def escaped(text: str) -> str:
        special = {"\n": "\\n", "\t": "\\t"}
        return "".join(special.get(char, f"\\{char}" if char in " =:#!\\" else char) for char in text)

    text = "\n".join(f"{escaped(name)}={escaped(value)}" for name, value in pairs.items())
    assert parsed(text) == pairs


@pytest.mark.stock
def test_java_reads_the_corner_cases_alike(jvm: JavaGateway) -> None:
    for text in CORNERS:
        assert parsed(text) == java_parsed(jvm, text), repr(text)


@pytest.mark.stock
@pytest.mark.parametrize("alphabet", ["ab=: \\\n#", "a=\\\r\nu0041!\t\f"])
def test_java_reads_generated_text_alike(jvm: JavaGateway, alphabet: str) -> None:
    import random

    chance = random.Random(7)
    for _ in range(300):
        text = "".join(chance.choice(alphabet) for _ in range(chance.randrange(25)))
        try:
            ours: dict[str, str] | None = parsed(text)
        except ConfigError:
            ours = None
        assert ours == java_parsed(jvm, text), repr(text)


def java_parsed(jvm: JavaGateway, text: str) -> dict[str, str] | None:
    from py4j.protocol import Py4JJavaError

    properties = jvm.jvm.java.util.Properties()
    try:
        properties.load(jvm.jvm.java.io.StringReader(text))
    except Py4JJavaError:
        return None
    return {str(name): str(properties.getProperty(name)) for name in properties.stringPropertyNames()}
