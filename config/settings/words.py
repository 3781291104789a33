"""Short names that keep the tables of settings readable."""

from __future__ import annotations

from typing import Final

from config.definitions import CLUSTER_WIDE, PER_BROKER, READ_ONLY, REQUIRED, Importance, Kind

__all__ = [
    "BOOLEAN",
    "CLASS",
    "CLUSTER_WIDE",
    "DOUBLE",
    "HIGH",
    "INT",
    "LIST",
    "LONG",
    "LOW",
    "MAX_DOUBLE",
    "MAX_INT",
    "MAX_LONG",
    "MEDIUM",
    "PASSWORD",
    "PER_BROKER",
    "READ_ONLY",
    "REQUIRED",
    "SHORT",
    "STRING",
]

BOOLEAN: Final = Kind.BOOLEAN
CLASS: Final = Kind.CLASS
DOUBLE: Final = Kind.DOUBLE
INT: Final = Kind.INT
LIST: Final = Kind.LIST
LONG: Final = Kind.LONG
PASSWORD: Final = Kind.PASSWORD
SHORT: Final = Kind.SHORT
STRING: Final = Kind.STRING

HIGH: Final = Importance.HIGH
MEDIUM: Final = Importance.MEDIUM
LOW: Final = Importance.LOW

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1
MAX_DOUBLE: Final = 1.7976931348623157e308
