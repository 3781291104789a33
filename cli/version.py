"""The version, read from the installed package, or from pyproject.toml in a source tree."""

from __future__ import annotations

from pathlib import Path


def version() -> str:
    source = Path(__file__).resolve().parent.parent / "pyproject.toml"
    if source.is_file():
        import tomllib

        return str(tomllib.loads(source.read_text())["project"]["version"])
    from importlib.metadata import version as installed_version

    return installed_version("barnabas")
