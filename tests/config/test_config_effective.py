"""The list of settings that matter is held against the code: what is listed is read, what is read is listed."""

from __future__ import annotations

import re
from pathlib import Path

from config.broker_settings import BROKER_SETTINGS, SYNONYMS
from config.effective import EFFECTIVE
from config.topic_settings import SERVER_DEFAULTS

ROOT = Path(__file__).resolve().parents[2]
ATTRIBUTES = {setting.attribute: name for name, setting in BROKER_SETTINGS.items()}


def text_of(*packages: str) -> str:
    return "\n".join(path.read_text() for package in packages for path in sorted((ROOT / package).rglob("*.py")))


def test_what_is_listed_is_read() -> None:
    attributes = set(re.findall(r"\.(\w+)", text_of("broker", "storage", "controller", "cli")))
    read = {ATTRIBUTES[word] for word in attributes if word in ATTRIBUTES}
    read |= set(re.findall(r'"([a-z.]+)"', (ROOT / "config" / "listeners.py").read_text()))
    for name in SERVER_DEFAULTS.values():  # through LogConfig, by the name of the topic's setting
        read |= {name, *SYNONYMS.get(name, ())}
    assert read >= EFFECTIVE


def test_what_is_read_is_listed() -> None:
    words = set(re.findall(r"config\.(\w+)", text_of("broker", "storage", "controller")))
    assert {ATTRIBUTES[word] for word in words if word in ATTRIBUTES} <= EFFECTIVE
