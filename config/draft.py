"""Settings on their way to a ``BrokerConfig``: parsed one by one, not yet checked against each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, cast

from config.broker_settings import BROKER_SETTINGS, DYNAMIC_ONLY, base_name
from config.definitions import Required, Value
from config.errors import ConfigError
from config.properties import Property, parse_properties

OVERRIDE = "--override"

# Settings that belong to plug-ins of Kafka and are therefore in no registry.
_PLUGIN_NAMES = frozenset({"super.users", "allow.everyone.if.no.acl.found"})
_PLUGIN_PREFIXES = ("rsm.config.", "rlmm.config.", "metrics.context.", "config.providers.")
_REMOVED_PREFIXES = ("zookeeper.", "control.plane.")
_REMOVED_NAMES = frozenset(
    {"inter.broker.protocol.version", "log.message.format.version", "log.message.timestamp.difference.max.ms"}
)


# What to add when a setting without a default is absent.
_MISSING_HINTS = {
    "process.roles": "Add process.roles=broker,controller for a node that is both.",
    "node.id": "Add node.id=1, or another number that no other node of the cluster has.",
    "controller.listener.names": "Add controller.listener.names=CONTROLLER and a listener of that name.",
}


class Place(NamedTuple):
    """Where a value was written."""

    file: str
    line: int | None


class Draft:
    """Parsed values by name, the text they came from, and where that text was written."""

    __slots__ = ("places", "raw", "values")

    def __init__(self, raw: Mapping[str, str], places: Mapping[str, Place]) -> None:
        self.raw = dict(raw)
        self.places = dict(places)
        for name, twin in (("node.id", "broker.id"), ("broker.id", "node.id")):
            if name not in self.raw and twin in self.raw:
                self.raw[name] = self.raw[twin]
                if twin in self.places:
                    self.places[name] = self.places[twin]
        self.values: dict[str, Value] = {}
        for name, setting in BROKER_SETTINGS.items():
            text = self.raw.get(name)
            if text is not None:
                self.values[name] = self._parse(name, name, text)
            elif isinstance(setting.default, Required):
                raise ConfigError(
                    f'Missing required configuration "{name}" which has no default value',
                    setting=name,
                    file=next((place.file for place in self.places.values()), None),
                    hint=_MISSING_HINTS.get(name),
                )
            else:
                self.values[name] = setting.default
        for name, text in self.raw.items():
            base = base_name(name)
            if base != name and base in BROKER_SETTINGS:
                self._parse(name, base, text)

    def _parse(self, name: str, base: str, text: str) -> Value:
        try:
            return BROKER_SETTINGS[base].parse(text)
        except ConfigError as error:
            place = self.places.get(name)
            raise (error if place is None else error.at(place.file, place.line)) from None

    def error(self, setting: str, message: str, hint: str) -> ConfigError:
        """An error of how ``setting`` fits the others, placed where it was written."""
        place = self.places.get(setting)
        return ConfigError(
            message,
            setting=setting,
            value=self.raw.get(setting),
            file=None if place is None else place.file,
            line=None if place is None else place.line,
            hint=hint,
        )

    def number(self, name: str) -> int:
        return cast(int, self.values[name])

    def text(self, name: str) -> str | None:
        return cast("str | None", self.values[name])

    def items(self, name: str) -> tuple[str, ...]:
        """A list setting; one that is not set is empty."""
        return cast("tuple[str, ...] | None", self.values[name]) or ()


def read_properties(path: str) -> list[Property]:
    """A file's assignments.  Java reads such files as ISO-8859-1, and so does this."""
    try:
        with open(path, encoding="iso-8859-1", newline="") as file:
            text = file.read()
    except OSError as problem:
        raise ConfigError(
            f"Cannot read the configuration file {path}: {problem.strerror}",
            file=path,
            hint="Name a readable properties file, such as config/server.properties.",
        ) from None
    return parse_properties(text, path)


def read_overrides(overrides: Iterable[str]) -> list[Property]:
    found = []
    for text in overrides:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"Cannot use {text!r}", file=OVERRIDE, hint="Write --override name=value.")
        found.append(Property(name.strip(), value, 0))
    return found


def warnings_for(raw: Mapping[str, str], places: Mapping[str, Place]) -> list[str]:
    """One line for each name that has no effect, saying why."""
    found = []
    for name in raw:
        complaint = _complaint(name)
        if complaint is not None:
            place = places.get(name)
            if place is not None:
                where = place.file if place.line is None else f"{place.file}, line {place.line}"
                complaint = f"{where}: {complaint}"
            found.append(complaint)
    return found


def _complaint(name: str) -> str | None:
    setting = BROKER_SETTINGS.get(base_name(name))
    if setting is not None and setting.effective:
        return None
    if setting is not None or name in _PLUGIN_NAMES or name.startswith(_PLUGIN_PREFIXES):
        return f"{name} is a Kafka setting that Barnabas does not act on yet"
    if name in DYNAMIC_ONLY:
        return f"{name} can only be set dynamically; here it has no effect"
    if name in _REMOVED_NAMES or name.startswith(_REMOVED_PREFIXES):
        return f"{name} was removed from Kafka and has no effect"
    from config.topic_settings import SERVER_DEFAULTS, TOPIC_SETTINGS

    if name in TOPIC_SETTINGS:
        server_name = SERVER_DEFAULTS.get(name)
        if server_name is None:
            return f"{name} is a setting of topics and has no effect here"
        return f"{name} is a setting of topics and has no effect here; its broker setting is {server_name}"
    from difflib import get_close_matches

    close = get_close_matches(name, BROKER_SETTINGS, 1, 0.75)
    return f"unknown setting {name}" + (f", did you mean {close[0]}?" if close else "")
