"""The configuration of one node, read once and passed to whoever needs it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

from config.addresses import HostPort, Listener, Voter
from config.broker_attributes import BrokerAttributes
from config.broker_settings import BROKER_SETTINGS, DYNAMIC_ONLY, SYNONYMS
from config.cross_checks import resolve_numbers
from config.definitions import Value
from config.draft import OVERRIDE, Draft, Place, read_overrides, read_properties, warnings_for
from config.listeners import resolve_listeners

__all__ = ["BrokerConfig", "HostPort", "Listener", "Voter", "overlaid"]

# What a mapping without process.roles stands for: a node that is broker and only controller.
_SINGLE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
}


class BrokerConfig(BrokerAttributes):
    """Immutable; every setting is a typed attribute, ``num.partitions`` being ``num_partitions``.

    ``raw`` holds what was written, ``values`` what it means setting by setting before precedence between
    units is resolved (both are what DescribeConfigs shows), the attributes what the code should use.
    """

    raw: Mapping[str, str]
    values: Mapping[str, Value]
    places: Mapping[str, Place]
    warnings: tuple[str, ...]
    dynamic_broker: Mapping[str, str]
    dynamic_default: Mapping[str, str]

    def __init__(
        self,
        raw: Mapping[str, str],
        places: Mapping[str, Place] | None = None,
        *,
        warnings: Sequence[str] = (),
        dynamic_broker: Mapping[str, str] | None = None,
        dynamic_default: Mapping[str, str] | None = None,
    ) -> None:
        effective = overlaid(raw, dynamic_default or {}, dynamic_broker or {})
        draft = Draft(effective, places or {})
        attributes: dict[str, Any] = {
            setting.attribute: draft.values[setting.name] for setting in BROKER_SETTINGS.values()
        }
        dynamic = {**(dynamic_default or {}), **(dynamic_broker or {})}
        for name, setting in DYNAMIC_ONLY.items():
            attributes[setting.attribute] = setting.parse(dynamic[name]) if name in dynamic else setting.default
        attributes.update(resolve_listeners(draft))
        attributes.update(resolve_numbers(draft))
        static = dict(raw)
        for twin in ("node.id", "broker.id"):
            static.setdefault(twin, draft.raw[twin])
        attributes["raw"] = MappingProxyType(static)
        attributes["values"] = MappingProxyType(draft.values)
        attributes["places"] = MappingProxyType(draft.places)
        attributes["warnings"] = tuple(warnings)
        attributes["dynamic_broker"] = MappingProxyType(dict(dynamic_broker or {}))
        attributes["dynamic_default"] = MappingProxyType(dict(dynamic_default or {}))
        self.__dict__.update(attributes)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"BrokerConfig is immutable; cannot set {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"BrokerConfig is immutable; cannot delete {name}")

    def __repr__(self) -> str:
        return f"BrokerConfig(node.id={self.node_id}, process.roles={','.join(self.process_roles)})"

    @classmethod
    def load(cls, path: str, overrides: Sequence[str] = ()) -> BrokerConfig:
        """Read a properties file; each override is ``name=value`` and wins over the file."""
        raw: dict[str, str] = {}
        places: dict[str, Place] = {}
        repeated = []
        for name, value, line in read_properties(path):
            if name in raw:
                before = places[name].line
                repeated.append(f"{path}, line {line}: {name} is set again (first on line {before}); this counts")
            raw[name] = value
            places[name] = Place(path, line)
        for name, value, _ in read_overrides(overrides):
            raw[name] = value
            places[name] = Place(OVERRIDE, None)
        if not raw:
            places[""] = Place(path, None)
        return cls(raw, places, warnings=repeated + warnings_for(raw, places))

    @classmethod
    def from_map(cls, settings: Mapping[str, str]) -> BrokerConfig:
        """Settings by name.  Without ``process.roles`` they describe a single node on free local ports."""
        raw = dict(settings)
        if "process.roles" not in raw:
            if "broker.id" in raw:
                raw.setdefault("node.id", raw["broker.id"])
            for name, value in _SINGLE_NODE.items():
                raw.setdefault(name, value)
        return cls(raw, warnings=warnings_for(raw, {}))

    def is_cordoned(self, log_dir: str) -> bool:
        """Whether a log directory takes no new replicas (KIP-1066)."""
        cordoned = self.cordoned_log_dirs
        return bool(cordoned) and (cordoned == ("*",) or os.path.abspath(log_dir) in map(os.path.abspath, cordoned))

    def with_dynamic(self, *, dynamic_broker: Mapping[str, str], dynamic_default: Mapping[str, str]) -> BrokerConfig:
        """This node's settings after changes made at run time, for this broker and for all brokers."""
        return BrokerConfig(
            self.raw,
            self.places,
            warnings=self.warnings,
            dynamic_broker=dynamic_broker,
            dynamic_default=dynamic_default,
        )


def overlaid(
    static: Mapping[str, str], dynamic_default: Mapping[str, str], dynamic_broker: Mapping[str, str]
) -> dict[str, str]:
    """Static settings, then those for all brokers, then those for this one.

    As in Kafka, a dynamic ``log.retention.ms`` also removes the same time in other units from below it, so
    that DescribeConfigs does not show a value that is no longer in force.
    """
    merged = dict(static)
    for layer in (dynamic_default, dynamic_broker):
        for name, value in layer.items():
            for synonym in SYNONYMS.get(name, ()):
                merged.pop(synonym, None)
            merged[name] = value
    return merged
