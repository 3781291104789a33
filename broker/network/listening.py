"""Binding a listener's address, with errors that name the listener and what to do about it."""

from __future__ import annotations

import errno
import socket
from typing import Any

from broker.network.settings import NetworkSettings
from config.addresses import Listener
from config.errors import ConfigError

_HINTS = {
    errno.EADDRINUSE: "Another process listens there; stop it or choose another port in listeners",
    errno.EADDRNOTAVAIL: "No interface of this machine has that address; leave the host empty to take all of them",
    errno.EACCES: "Ports below 1024 need privileges; choose a higher one",
}


def open_listener(listener: Listener, settings: NetworkSettings) -> tuple[socket.socket, int]:
    """A bound socket that does not listen yet, and its port (which the system chose if the listener says 0)."""
    if listener.protocol != "PLAINTEXT":
        raise _error(
            listener, f"security protocol {listener.protocol} is not supported", "Use PLAINTEXT for this listener"
        )
    try:
        if not listener.host:
            sock = _bind_every_interface(listener.port, settings)
        else:
            sock = _bind_host(listener.host, listener.port, settings)
    except socket.gaierror as error:
        raise _error(
            listener, f"the host does not resolve ({error.strerror})", "Name a host or an address of this machine"
        ) from error
    except OSError as error:
        raise _error(listener, error.strerror or str(error), _HINTS.get(error.errno or 0)) from error
    return sock, sock.getsockname()[1]


def _bind_host(host: str, port: int, settings: NetworkSettings) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # A name with both kinds of address is bound to its IPv4 one, as the JVM prefers it.
    family, _, _, _, address = min(found, key=lambda info: info[0] != socket.AF_INET)
    return _bind(family, address, settings)


def _bind_every_interface(port: int, settings: NetworkSettings) -> socket.socket:
    """IPv6 and IPv4 through one socket, or IPv4 alone on a machine without IPv6."""
    try:
        return _bind(socket.AF_INET6, ("::", port), settings)
    except OSError as error:
        if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            raise
    return _bind(socket.AF_INET, ("0.0.0.0", port), settings)


def _bind(family: int, address: tuple[Any, ...], settings: NetworkSettings) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address[0] != "::")
        if settings.receive_buffer_bytes != -1:
            # On the listening socket, because the window is agreed on before a connection is accepted.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock


def _error(listener: Listener, problem: str, hint: str | None) -> ConfigError:
    return ConfigError(
        f"Cannot listen on {listener} (setting listeners): {problem}",
        setting="listeners",
        value=str(listener),
        hint=hint,
    )
