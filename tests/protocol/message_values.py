"""Random values for declared messages, and their spelling in Kafka's JSON, which its Java classes read."""

from __future__ import annotations

import base64
import importlib
import pkgutil
import random
from collections.abc import Iterator
from typing import Any

import protocol.coordinator
import protocol.messages
import protocol.metadata
from protocol.schema import Field, Message, Struct
from protocol.uuids import Uuid

WORDS = ["", "a", "topic-1", "äöü", "名前", "🚀 launch", "x" * 130]


def all_messages() -> Iterator[type[Message]]:
    """Every declared message: requests, responses, headers, data schemas, metadata and coordinator records."""
    for package in (protocol.messages, protocol.metadata, protocol.coordinator):
        for info in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{package.__name__}.{info.name}")
            for value in vars(module).values():
                if isinstance(value, type) and issubclass(value, Message) and value.__module__ == module.__name__:
                    yield value


def random_message(declared: type[Message], version: int, rng: random.Random) -> Message:
    made = _random_struct(declared, version, rng)
    assert isinstance(made, Message)
    return made


def _random_struct(declared: type[Struct], version: int, rng: random.Random) -> Struct:
    made = declared()
    for field in declared.FIELDS:
        if version in field.versions and not (field.tag is not None and rng.random() < 0.3):
            setattr(made, field.name, _random_value(field, version, rng))
    return made


def _random_value(field: Field, version: int, rng: random.Random) -> Any:
    if version in field.nullable and rng.random() < 0.25:
        return None
    if field.is_array:
        return [_random_element(field, version, rng) for _ in range(rng.choice((0, 1, 2, 3)))]
    return _random_element(field, version, rng)


def _random_element(field: Field, version: int, rng: random.Random) -> Any:
    if field.struct is not None:
        return _random_struct(field.struct, version, rng)
    assert field.kind is not None
    name = field.kind.name
    if name == "boolean":
        return rng.random() < 0.5
    if name == "float64":
        return rng.uniform(-1e9, 1e9)
    if name == "uuid":
        return Uuid(rng.randbytes(16))
    if name == "string":
        # A suffix keeps the keys of Kafka's map-like arrays apart.
        return rng.choice(WORDS) + str(rng.randrange(10**9))
    if name in ("bytes", "records"):
        return rng.randbytes(rng.choice((0, 1, 40, 200)))
    bits = field.kind.size * 8
    if name.startswith("u"):
        return rng.randrange(2**bits)
    return rng.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1))


def wire_name(field: Field) -> str:
    """Kafka's JSON spells fields in camel case, beginning small."""
    camel = field.wire_name or "".join(part[:1].upper() + part[1:] for part in field.name.rstrip("_").split("_"))
    return camel[:1].lower() + camel[1:]


def as_json(value: Struct, version: int) -> dict[str, Any]:
    return {
        wire_name(field): _json_value(field, getattr(value, field.name), version)
        for field in value.FIELDS
        if version in field.versions
    }


def _json_value(field: Field, value: Any, version: int) -> Any:
    if value is None:
        return None
    if field.is_array:
        return [_json_element(field, element, version) for element in value]
    return _json_element(field, value, version)


def _json_element(field: Field, value: Any, version: int) -> Any:
    if field.struct is not None:
        return as_json(value, version)
    assert field.kind is not None
    if field.kind.name == "uuid":
        return str(value)
    if field.kind.name in ("bytes", "records"):
        return base64.b64encode(value).decode()
    return value
