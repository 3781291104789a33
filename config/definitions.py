"""What a setting is: its name, type, default, permitted values, importance and update mode.

Values are parsed as Kafka's ConfigDef parses them, down to the wording of a refusal, because admin clients
show that wording to their users.  Everything here is plain slotted classes: several hundred settings are
declared at start-up, and that must cost next to nothing.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, Literal

from config.errors import ConfigError, invalid_value

if TYPE_CHECKING:
    from config.checks import Check

Value = bool | int | float | str | tuple[str, ...] | None
UpdateMode = Literal["read-only", "per-broker", "cluster-wide"]
READ_ONLY: Final = "read-only"
PER_BROKER: Final = "per-broker"
CLUSTER_WIDE: Final = "cluster-wide"


class Kind(IntEnum):
    """Types of values; the numbers are the ConfigType ids of DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Importance(IntEnum):
    HIGH = 0
    MEDIUM = 1
    LOW = 2


class Required:
    """Stands for the default of a setting that has none."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = Required()

_BITS = {Kind.SHORT: 15, Kind.INT: 31, Kind.LONG: 63}
_BLANKS = "".join(map(chr, range(33)))  # what java.lang.String.trim removes
_EXPECTED = {
    Kind.BOOLEAN: "true or false",
    Kind.SHORT: "a whole number of 16 bits",
    Kind.INT: "a whole number of 32 bits",
    Kind.LONG: "a whole number of 64 bits",
    Kind.DOUBLE: "a number",
    Kind.LIST: "values separated by commas",
}


class Setting:
    """One setting as Kafka defines it.  ``default`` is typed; lists are tuples, passwords are plain text."""

    __slots__ = (
        "attribute",
        "check",
        "default",
        "doc",
        "importance",
        "internal",
        "kind",
        "name",
        "update_mode",
    )

    def __init__(
        self,
        name: str,
        kind: Kind,
        default: Value | Required,
        importance: Importance,
        update_mode: UpdateMode,
        check: Check | None,
        doc: str,
        internal: bool = False,
    ) -> None:
        self.name = name
        self.attribute = name.replace(".", "_")
        self.kind = kind
        self.default = default
        self.importance = importance
        self.update_mode = update_mode
        self.check = check
        self.doc = doc
        self.internal = internal

    def __repr__(self) -> str:
        return f"Setting({self.name!r}, {self.kind.name}, default={self.default!r})"

    @property
    def sensitive(self) -> bool:
        """Whether the value must never be shown."""
        return self.kind is Kind.PASSWORD

    @property
    def effective(self) -> bool:
        """Whether Barnabas acts on this setting today."""
        from config.effective import EFFECTIVE

        return self.name in EFFECTIVE

    @property
    def expected(self) -> str | None:
        """What a right value looks like, for the hint of an error."""
        kind = _EXPECTED.get(self.kind)
        rule = self.check.expected if self.check is not None else None
        if rule is None or kind is None:
            return rule or kind
        return f"{kind}, {rule}"

    def parse(self, text: str) -> Value:
        """The typed value, or ConfigError with Kafka's wording."""
        try:
            value = parse_value(self.kind, text)
        except ValueError as problem:
            raise self._error("[hidden]" if self.sensitive else text, str(problem)) from None
        if self.check is not None:
            if isinstance(value, tuple) and self.check.drops_duplicates:
                value = tuple(dict.fromkeys(value))
            problem_found = self.check.problem(self.name, value)
            if problem_found is not None:
                shown, problem_text = problem_found
                if shown is None:
                    raise ConfigError(problem_text, setting=self.name, value=text, hint=self._hint())
                raise self._error(shown, problem_text)
        return value

    def _hint(self) -> str | None:
        return None if self.expected is None else f"Expected {self.expected}."

    def _error(self, shown: str, problem: str) -> ConfigError:
        return invalid_value(self.name, shown, problem, self._hint())


def parse_value(kind: Kind, text: str) -> Value:
    """Parse as Kafka's ConfigDef does; ValueError carries its wording of the problem."""
    if kind is Kind.PASSWORD:
        return text
    trimmed = text.strip(_BLANKS)
    if kind is Kind.BOOLEAN:
        lowered = trimmed.lower()
        if lowered == "true":
            return True
        if lowered == "false":
            return False
        raise ValueError("Expected value to be either true or false")
    bits = _BITS.get(kind)
    if bits is not None:
        try:
            number = int(trimmed)
        except ValueError:
            number = 1 << 64
        if "_" in trimmed or not -(1 << bits) <= number < 1 << bits:
            raise ValueError(f"Not a number of type {kind.name}")
        return number
    if kind is Kind.DOUBLE:
        return _parse_double(trimmed)
    if kind is Kind.LIST:
        return tuple(item.strip(" \t\n\v\f\r") for item in trimmed.split(",")) if trimmed else ()
    return trimmed


def _parse_double(text: str) -> float:
    """java.lang.Double.parseDouble: its own spellings of infinity, an optional type suffix, hexadecimal."""
    body = text[:-1] if text[-1:] in ("f", "F", "d", "D") else text
    unsigned = body.lstrip("+-")
    try:
        if unsigned in ("NaN", "Infinity"):
            return float(body)
        if unsigned[:2] in ("0x", "0X"):
            if "p" not in unsigned.lower():
                raise ValueError
            return float.fromhex(body)
        if not unsigned or any(char not in "0123456789.eE+-" for char in unsigned):
            raise ValueError
        return float(body)
    except (ValueError, OverflowError):
        raise ValueError("Not a number of type DOUBLE") from None


def double_text(number: float) -> str:
    """A double as Java prints it: plain between 0.001 and 10,000,000, else with an ``E`` exponent."""
    if number != number:
        return "NaN"
    if number in (float("inf"), float("-inf")):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        text = repr(number)
        if "e" not in text:
            return text
    mantissa, _, exponent = f"{number!r}".partition("e")
    if not exponent:
        sign = "-" if number < 0 else ""
        whole, _, fraction = mantissa.lstrip("-").partition(".")
        if whole == "0":
            digits = fraction.lstrip("0")
            power = -(len(fraction) - len(digits)) - 1
        else:
            digits = whole + fraction
            power = len(whole) - 1
        digits = digits.rstrip("0") or "0"
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power}"
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


def value_text(value: Value) -> str | None:
    """A typed value as DescribeConfigs shows it."""
    if value is None or isinstance(value, str):
        return value
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)
