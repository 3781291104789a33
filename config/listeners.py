"""Listeners, roles and the controller quorum: how these settings must fit together.

The rules are Kafka's.  One differs: a wildcard in ``listeners`` without ``advertised.listeners`` is fine,
because Barnabas then advertises the address that each client connected to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from config.addresses import (
    SECURITY_PROTOCOLS,
    AddressError,
    Listener,
    is_ip,
    is_ipv4,
    parse_bootstrap_server,
    parse_voter,
    split_listener,
)
from config.draft import Draft
from config.effective import SUPPORTED_PROTOCOLS

_MAP = "listener.security.protocol.map"
_NAMES = "controller.listener.names"


def resolve_listeners(draft: Draft) -> dict[str, Any]:
    """The attributes of BrokerConfig that come from the listener settings."""
    roles = draft.items("process.roles")
    controller_names = draft.items(_NAMES)
    protocols = protocol_map(draft)
    listeners = parse_listeners(draft, "listeners", protocols, distinct_ports=True)
    advertised = parse_listeners(draft, "advertised.listeners", protocols, distinct_ports=False)
    _check_roles(draft, roles, controller_names, listeners)
    if "broker" in roles:
        inter_broker = _inter_broker_listener(draft, protocols)
        _check_broker_listeners(draft, controller_names, listeners, advertised, inter_broker)
    else:
        inter_broker = draft.text("inter.broker.listener.name") or "PLAINTEXT"
    for listener in listeners:
        if listener.protocol not in SUPPORTED_PROTOCOLS:
            raise draft.error(
                "listeners",
                f"Listener {listener.name} uses {listener.protocol}, which Barnabas does not speak yet",
                f"Use a listener of {', '.join(sorted(SUPPORTED_PROTOCOLS))}.",
            )
    return {
        "listeners": listeners,
        "advertised_listeners": advertised,
        "listener_security_protocol_map": protocols,
        "inter_broker_listener_name": inter_broker,
        "controller_quorum_voters": tuple(map(parse_voter, draft.items("controller.quorum.voters"))),
        "controller_quorum_bootstrap_servers": tuple(
            map(parse_bootstrap_server, draft.items("controller.quorum.bootstrap.servers"))
        ),
    }


def protocol_map(draft: Draft) -> dict[str, str]:
    """Listener name to security protocol.

    When the map is not set, controller listeners are PLAINTEXT by default, but not on a node that has any
    TLS or SASL listener: there the omission is more likely a mistake than a wish.
    """
    found: dict[str, str] = {}
    for entry in filter(None, (item.strip() for item in (draft.text(_MAP) or "").split(","))):
        name, colon, protocol = entry.rpartition(":")
        name, protocol = name.strip().upper(), protocol.strip()
        if not colon or not name:
            raise draft.error(_MAP, f"Cannot read {entry!r} in {_MAP}", "Write NAME:PROTOCOL,NAME:PROTOCOL.")
        if protocol not in SECURITY_PROTOCOLS:
            raise draft.error(
                _MAP,
                f"Invalid security protocol `{protocol}` defined in {_MAP}",
                f"Use one of {', '.join(SECURITY_PROTOCOLS)}.",
            )
        found[name] = protocol
    if _MAP not in draft.raw:
        controller_names = draft.items(_NAMES)
        names = {item.partition("://")[0].upper() for item in draft.items("listeners")}
        if names.union(controller_names).isdisjoint(SECURITY_PROTOCOLS[1:]):
            for name in controller_names:
                found.setdefault(name.upper(), "PLAINTEXT")
    return found


def parse_listeners(
    draft: Draft, setting: str, protocols: Mapping[str, str], *, distinct_ports: bool
) -> tuple[Listener, ...]:
    found: list[Listener] = []
    for item in draft.items(setting):
        try:
            name, host, port = split_listener(item)
        except AddressError as problem:
            raise draft.error(setting, f"Cannot use {setting}: {problem}", "For example PLAINTEXT://:9092.") from None
        protocol = protocols.get(name)
        if protocol is None:
            raise draft.error(
                setting,
                f"No security protocol defined for listener {name}",
                f"Add {name}:PLAINTEXT (or another protocol) to {_MAP}, beside the listeners that are there.",
            )
        if any(name == other.name for other in found):
            raise draft.error(
                setting,
                f"Each listener must have a different name, but {name} occurs twice in {setting}",
                f"Rename one of them and add its new name to {_MAP}.",
            )
        found.append(Listener(name, host, port, protocol))
    if distinct_ports:
        _check_ports(draft, setting, found)
    return tuple(found)


def _check_ports(draft: Draft, setting: str, listeners: list[Listener]) -> None:
    """Ports differ, except that one IPv4 and one IPv6 address may share a port; 0 is chosen at bind."""
    for port in {listener.port for listener in listeners if listener.port}:
        hosts = [listener.host for listener in listeners if listener.port == port]
        if len(hosts) == 1:
            continue
        both_families = len(hosts) == 2 and all(map(is_ip, hosts)) and is_ipv4(hosts[0]) != is_ipv4(hosts[1])
        if not both_families:
            raise draft.error(
                setting,
                f"Each listener must have a different port, but {setting} has {port} {len(hosts)} times",
                "Give each its own port; only an IPv4 and an IPv6 address may share one.",
            )


def _check_roles(
    draft: Draft, roles: tuple[str, ...], controller_names: tuple[str, ...], listeners: tuple[Listener, ...]
) -> None:
    listener_names = [listener.name for listener in listeners]
    wanted = [name.upper() for name in controller_names]
    present = [name for name in wanted if name in listener_names]
    voters = {parse_voter(item).id for item in draft.items("controller.quorum.voters")}
    node_id = draft.number("node.id")
    if draft.number("broker.id") != node_id:
        raise draft.error(
            "broker.id",
            "You must set `node.id` to the same value as `broker.id`",
            "Remove broker.id; node.id alone is enough.",
        )
    if not voters and not draft.items("controller.quorum.bootstrap.servers"):
        raise draft.error(
            "process.roles",
            "Neither controller.quorum.bootstrap.servers nor controller.quorum.voters is set",
            "Add controller.quorum.bootstrap.servers=localhost:9093 with the addresses of the controllers.",
        )
    if "controller" in roles:
        if voters and node_id not in voters:
            raise draft.error(
                "controller.quorum.voters",
                f"Node {node_id} has the controller role but is not among the voters {sorted(voters)}",
                f"Add {node_id}@host:port to controller.quorum.voters, or correct node.id.",
            )
        if len(present) < len(wanted):
            absent = next(name for name in wanted if name not in listener_names)
            raise draft.error(
                _NAMES,
                f"{_NAMES} names {absent}, but 'listeners' has no listener of that name",
                f"Add {absent}://:9093 to listeners, or correct {_NAMES}.",
            )
        if "broker" not in roles and len(present) < len(listener_names):
            extra = next(name for name in listener_names if name not in wanted)
            raise draft.error(
                "listeners",
                f"With process.roles=controller, every listener must be in {_NAMES}; {extra} is not",
                f"Remove {extra} from listeners, or add the broker role to process.roles.",
            )
    else:
        if present:
            raise draft.error(
                _NAMES,
                f"With process.roles=broker, {present[0]} cannot be in both {_NAMES} and 'listeners'",
                f"Remove {present[0]} from listeners: the controllers listen on it, not this broker.",
            )
        if node_id in voters:
            raise draft.error(
                "controller.quorum.voters",
                f"Node {node_id} is a voter but does not have the controller role",
                "Use process.roles=broker,controller, or another node.id.",
            )


def _inter_broker_listener(draft: Draft, protocols: Mapping[str, str]) -> str:
    name = draft.text("inter.broker.listener.name")
    if name is None:
        return draft.text("security.inter.broker.protocol") or "PLAINTEXT"
    setting = "inter.broker.listener.name"
    if "security.inter.broker.protocol" in draft.raw:
        raise draft.error(
            setting,
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set",
            "Remove security.inter.broker.protocol; the listener's own protocol is used.",
        )
    if name.upper() not in protocols:
        raise draft.error(setting, f"{setting} names {name}, which is not in {_MAP}", "Name one of the listeners.")
    return name.upper()


def _check_broker_listeners(
    draft: Draft,
    controller_names: tuple[str, ...],
    listeners: tuple[Listener, ...],
    advertised: tuple[Listener, ...],
    inter_broker: str,
) -> None:
    own = {name.upper() for name in controller_names}
    names = [listener.name for listener in listeners]
    clients = [listener.name for listener in advertised or listeners if listener.name not in own]
    setting = "advertised.listeners" if advertised else "listeners"
    if not clients:
        raise draft.error(
            setting,
            f"{setting} leaves no listener for clients: all of them are in {_NAMES}",
            "Add one such as PLAINTEXT://:9092.",
        )
    for listener in advertised:
        if listener.host in ("0.0.0.0", "::"):
            raise draft.error(
                setting,
                f"advertised.listeners cannot use the nonroutable meta-address {listener.host}",
                "Name the host or address that clients can reach, or remove advertised.listeners: then each"
                " client is told the address it connected to.",
            )
        if listener.name not in names:
            raise draft.error(
                setting,
                f"advertised.listeners has {listener.name}, which is not in listeners ({', '.join(names)})",
                "Advertise only names that listeners has.",
            )
    if inter_broker not in clients:
        raise draft.error(
            "inter.broker.listener.name",
            f"The listener between brokers is {inter_broker}, which is not among {', '.join(clients)}",
            f"Set inter.broker.listener.name={clients[0]}.",
        )
