"""Listeners, voters and bootstrap addresses as settings write them."""

from __future__ import annotations

import re
from typing import NamedTuple

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_LISTENER = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")
_HOST_PORT = re.compile(r"(?:[a-zA-Z][a-zA-Z0-9+.-]*://)?\[?([0-9a-zA-Z\-%._:]+)\]?:([0-9]+)")


class AddressError(ValueError):
    """Text that is not an address; says what was expected."""


class Listener(NamedTuple):
    """An address to listen on or to advertise.  An empty host means every interface."""

    name: str
    host: str
    port: int
    protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class HostPort(NamedTuple):
    host: str
    port: int


class Voter(NamedTuple):
    """A member of a static controller quorum."""

    id: int
    host: str
    port: int


def split_listener(text: str) -> tuple[str, str, int]:
    """``NAME://host:port`` into its parts, the name in upper case as Kafka compares names."""
    match = _LISTENER.fullmatch(text)
    if match is None:
        raise AddressError(f"{text} is not a listener; write NAME://host:port")
    name, host, port = match.groups()
    if not name:
        raise AddressError(f"{text} has no listener name; write NAME://host:port")
    number = int(port)
    if not 0 <= number <= 65535:
        raise AddressError(f"{text} has port {port}; a port is between 0 and 65535")
    return name.upper(), host, number


def parse_bootstrap_server(text: str) -> HostPort:
    match = _HOST_PORT.fullmatch(text)
    if match is None:
        raise AddressError(f"{text or 'an empty entry'} is not an address; write host:port")
    port = int(match[2])
    if port > 65535:
        raise AddressError(f"port {port} does not exist; a port is between 0 and 65535")
    return HostPort(match[1], port)


def parse_voter(text: str) -> Voter:
    number, at, address = text.partition("@")
    if not at:
        raise AddressError(f"{text} is not a voter; write id@host:port")
    if not number.isdecimal():
        raise AddressError(f"{number} is not a node id; write id@host:port with a whole number as id")
    host, port = parse_bootstrap_server(address)
    if host == "0.0.0.0":
        raise AddressError("0.0.0.0 cannot be reached from another node; name the host of the voter")
    return Voter(int(number), host, port)


def is_ipv4(host: str) -> bool:
    parts = host.split(".")
    return len(parts) == 4 and all(part.isdecimal() and int(part) < 256 for part in parts)


def is_ip(host: str) -> bool:
    return is_ipv4(host) or ":" in host
