"""Rules for the values of settings.

``str()`` of a rule is the text Kafka prints for the same rule, which lets a test compare the registries.
``problem`` returns None for a good value, else the value to show (None: the sentence stands alone) and the
sentence that says what is wrong.
"""

from __future__ import annotations

from config.addresses import AddressError, parse_bootstrap_server, parse_voter
from config.definitions import Value, double_text

Problem = tuple[str | None, str] | None


class Check:
    __slots__ = ()
    drops_duplicates = False

    @property
    def expected(self) -> str | None:
        return None

    def problem(self, name: str, value: Value) -> Problem:
        raise NotImplementedError


class Range(Check):
    """Numbers between two bounds; either may be absent."""

    __slots__ = ("high", "low")

    def __init__(self, low: float | None, high: float | None = None) -> None:
        self.low = low
        self.high = high

    def __str__(self) -> str:
        if self.high is None:
            return f"[{self.low},...]"
        return f"[{self.low},...,{self.high}]"

    @property
    def expected(self) -> str:
        return f"at least {self.low}" if self.high is None else f"between {self.low} and {self.high}"

    def problem(self, name: str, value: Value) -> Problem:
        assert isinstance(value, (int, float))
        if self.low is not None and value < self.low:
            return _number(value), f"Value must be at least {self.low}"
        if self.high is not None and value > self.high:
            return _number(value), f"Value must be no more than {self.high}"
        return None


class GzipLevel(Check):
    __slots__ = ()

    def __str__(self) -> str:
        return "[1,...,9] or -1"

    @property
    def expected(self) -> str:
        return "between 1 and 9, or -1 for the library's own default"

    def problem(self, name: str, value: Value) -> Problem:
        assert isinstance(value, int)
        if value == -1 or 1 <= value <= 9:
            return None
        return str(value), "Value must be between 1 and 9 or equal to -1"


class OneOf(Check):
    __slots__ = ("choices", "ignore_case")

    def __init__(self, *choices: str, ignore_case: bool = False) -> None:
        self.choices = choices
        self.ignore_case = ignore_case

    def __str__(self) -> str:
        choices = f"[{', '.join(self.choices)}]"
        return f"(case insensitive) {choices}" if self.ignore_case else choices

    @property
    def expected(self) -> str:
        return f"one of {', '.join(self.choices)}"

    def problem(self, name: str, value: Value) -> Problem:
        assert isinstance(value, str)
        if value in self.choices or (self.ignore_case and value.upper() in self.choices):
            return None
        rule = "String must be one of (case insensitive)" if self.ignore_case else "String must be one of"
        return value, f"{rule}: {', '.join(self.choices)}"


class NotEmpty(Check):
    __slots__ = ()

    def __str__(self) -> str:
        return "non-empty string"

    @property
    def expected(self) -> str:
        return "some text"

    def problem(self, name: str, value: Value) -> Problem:
        return ("", "String must be non-empty") if value == "" else None


class NotNull(Check):
    """Any text; a properties file cannot write null, so this only mirrors Kafka's registry."""

    __slots__ = ()

    def __str__(self) -> str:
        return "non-null string"

    def problem(self, name: str, value: Value) -> Problem:
        return None


class ListOf(Check):
    """A list without empty entries; Kafka drops duplicates of such lists when it reads them."""

    __slots__ = ("choices", "may_be_empty")
    drops_duplicates = True

    def __init__(self, *choices: str, may_be_empty: bool = True) -> None:
        self.choices = choices
        self.may_be_empty = may_be_empty

    def __str__(self) -> str:
        return f"[{', '.join(self.choices)}]" if self.choices else ""

    @property
    def expected(self) -> str:
        if self.choices:
            return f"each one of {', '.join(self.choices)}"
        return "none of them empty" if self.may_be_empty else "at least one, none of them empty"

    def problem(self, name: str, value: Value) -> Problem:
        assert isinstance(value, tuple)
        if not value and not self.may_be_empty:
            valid = str(self) or "any non-empty value"
            return None, f"Configuration '{name}' must not be empty. Valid values include: {valid}"
        for item in value:
            if not item:
                return None, f"Configuration '{name}' values must not be empty."
            if self.choices and item not in self.choices:
                return item, f"String must be one of: {', '.join(self.choices)}"
        return None


class ThrottledReplicas(Check):
    __slots__ = ()

    def __str__(self) -> str:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."

    @property
    def expected(self) -> str:
        return "'*' or pairs such as 0:1,1:2"

    def problem(self, name: str, value: Value) -> Problem:
        assert isinstance(value, tuple)
        if "".join(value) == "*" or all(not item or _is_replica(item) for item in value):
            return None
        rule = f"{name} must be the literal '*' or a list of replicas in the following format: {self}"
        return f"[{', '.join(value)}]", rule


class QuorumVoters(Check):
    __slots__ = ()

    def __str__(self) -> str:
        return "non-empty list"

    @property
    def expected(self) -> str:
        return "each written id@host:port"

    def problem(self, name: str, value: Value) -> Problem:
        assert isinstance(value, tuple)
        return _first_address_problem(parse_voter, value)


class BootstrapServers(Check):
    __slots__ = ()

    def __str__(self) -> str:
        return "non-empty list"

    @property
    def expected(self) -> str:
        return "each written host:port"

    def problem(self, name: str, value: Value) -> Problem:
        assert isinstance(value, tuple)
        return _first_address_problem(parse_bootstrap_server, value)


def _first_address_problem(parse: object, items: tuple[str, ...]) -> Problem:
    assert callable(parse)
    for item in items:
        try:
            parse(item)
        except AddressError as error:
            return item, str(error)
    return None


def _number(value: int | float) -> str:
    return double_text(value) if isinstance(value, float) else str(value)


def _is_replica(text: str) -> bool:
    partition, colon, broker = text.partition(":")
    return bool(colon) and text.isascii() and partition.isdecimal() and broker.isdecimal()


COMPRESSION_TYPES = OneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
