"""ARCHITECTURE.md names every module: whoever adds a file says there what it is for."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("broker", "protocol", "storage", "controller", "config", "cli", "bench", "pipeline")

# Folders that the map describes as a whole: one module per API, record or group of settings.
AS_A_WHOLE = (
    "protocol/messages/",
    "protocol/metadata/",
    "protocol/coordinator/",
    "config/settings/",
    "broker/handlers/",
    "bench/cases/",
    "pipeline/jobs/",
    "pipeline/generators/",
)


def test_the_file_map_is_complete() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    missing = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if path.name in ("__init__.py", "__main__.py") or name.startswith(AS_A_WHOLE):
                continue
            if f"`{path.name}`" not in text and f"`{name.split('/', 1)[1]}`" not in text:
                missing.append(name)
    assert not missing, f"ARCHITECTURE.md does not name {missing}"


def test_the_file_map_names_nothing_that_is_gone() -> None:
    present = {path.name for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = {word.rsplit("/", 1)[-1] for word in text.split("`")[1::2] if word.endswith(".py")}
    assert named <= present, f"ARCHITECTURE.md names {sorted(named - present)}"
