"""Finds a Java runtime that can run Apache Kafka 4.3's programs (17 or later).

Kafka's tools and the anchor broker are the oracle of our tests, so a missing Java is an error with one line
that says what to install, never a silent skip: a test run that skipped the oracle would look as green as a
real one.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys

MINIMUM_JAVA = 17  # Kafka 4.x brokers and tools are compiled for 17

WHAT_TO_INSTALL = (
    f"the tests need Java {MINIMUM_JAVA} or later: install Debian's `default-jre-headless`"
    " (or any JRE) and put `java` on PATH or set JAVA_HOME"
)


class JavaNotFound(RuntimeError):
    """No usable Java; the message is the one line a person needs."""


def java_major(path: str) -> int | None:
    """The major version of the `java` at `path`, None when it cannot be run."""
    try:
        run = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', run.stderr + run.stdout)
    return int(match.group(1)) if match and run.returncode == 0 else None


@functools.cache
def find_java() -> str:
    """The path of a java >= 17: JAVA_HOME first, then PATH."""
    candidates: list[str] = []
    home = os.environ.get("JAVA_HOME")
    if home:
        candidates.append(os.path.join(home, "bin", "java"))
    on_path = shutil.which("java")
    if on_path:
        candidates.append(on_path)
    found = []
    for candidate in candidates:
        major = java_major(candidate)
        if major is not None and major >= MINIMUM_JAVA:
            return candidate
        found.append(f"{candidate} is {'not runnable' if major is None else f'Java {major}'}")
    raise JavaNotFound("; ".join([*found, WHAT_TO_INSTALL]))


if __name__ == "__main__":
    try:
        print(find_java())
    except JavaNotFound as missing:
        sys.exit(str(missing))
