"""Fetches Apache Kafka 4.3.1's jars (tools and broker) once, into a project-local cache.

The Ivy program that pyspark carries resolves them with its built-in settings, so no registry is named here;
a site with a mirror of its own points BARNABAS_IVY_SETTINGS at its ivysettings.xml. Tools and broker are
resolved as *one* dependency set: one directory, one version of everything, one class path.

`python -m support.jars` (in tests/) does the same from the Makefile.
"""

from __future__ import annotations

import fcntl
import glob
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from support.java import JavaNotFound, find_java

KAFKA_VERSION = "4.3.1"
ROOT = Path(__file__).resolve().parents[2]
ATTEMPTS = 2  # a registry that hiccups once is common, one that fails twice is down

_IVY_MODULE = """<ivy-module version="2.0">
  <info organisation="barnabas" module="{module}"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""
_BROKER = ("kafka-tools", "kafka_2.13")
_JLINE_VERSION = "3.30.4"  # the one that Apache Kafka 4.3.1 comes with


class JarsUnavailable(RuntimeError):
    """The jars could not be fetched; the message carries Ivy's last lines."""


def cache_directory() -> Path:
    """`.cache` of the project, or BARNABAS_TEST_CACHE where several clones share one."""
    return Path(os.environ.get("BARNABAS_TEST_CACHE") or ROOT / ".cache").resolve()


def pyspark_jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarsUnavailable("pyspark is not installed: run `make setup-test` (it carries Ivy and py4j)")
    return Path(spec.origin).parent / "jars"


def _one(pattern: str) -> str:
    found = sorted(glob.glob(str(pyspark_jars() / pattern)))
    if not found:
        raise JarsUnavailable(f"no {pattern} in {pyspark_jars()}")
    return found[-1]


def ivy_jar() -> str:
    return _one("ivy-*.jar")


def py4j_jar() -> str:
    return _one("py4j-*.jar")


def logging_jars() -> list[str]:
    """A logger for the stock tools, which come with none: pyspark carries one, and the slf4j that it binds to."""
    return [_one(f"{name}-2.*.jar") for name in ("slf4j-api", "log4j-slf4j2-impl", "log4j-api", "log4j-core")]


def kafka_jars() -> list[str]:
    """Every jar of the stock tools and the stock broker, fetched on first use."""
    wanted = [("org.apache.kafka", name, KAFKA_VERSION) for name in _BROKER]
    return _fetched(f"kafka-{KAFKA_VERSION}", wanted)


def shell_jars() -> list[str]:
    """What kafka-metadata-shell needs beside them: itself and its console."""
    wanted = [("org.apache.kafka", "kafka-shell", KAFKA_VERSION), ("org.jline", "jline", _JLINE_VERSION)]
    return _fetched(f"kafka-shell-{KAFKA_VERSION}", wanted, transitive=False)


def class_path() -> str:
    return os.pathsep.join(kafka_jars())


def _fetched(directory: str, wanted: Sequence[tuple[str, str, str]], *, transitive: bool = True) -> list[str]:
    """Safe against concurrent callers: a file lock admits one fetcher, and the directory appears under its final name
    only when it is complete.
    """
    home = cache_directory() / directory
    jars = home / "jars"
    if not jars.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        with open(home / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not jars.is_dir():
                _fetch(home, jars, wanted, transitive=transitive)
    return sorted(str(path) for path in jars.glob("*.jar"))


def _fetch(home: Path, jars: Path, wanted: Sequence[tuple[str, str, str]], *, transitive: bool) -> None:
    incoming = home / "incoming"
    module = home / "ivy.xml"
    how = f'conf="default->default" transitive="{str(transitive).lower()}"'
    lines = [f'    <dependency org="{org}" name="{name}" rev="{rev}" {how}/>' for org, name, rev in wanted]
    module.write_text(_IVY_MODULE.format(module=home.name, dependencies="\n".join(lines)))
    command = [find_java(), "-jar", ivy_jar(), "-ivy", str(module), "-confs", "default"]
    command += ["-cache", str(cache_directory() / "ivy")]
    command += ["-retrieve", f"{incoming}/[artifact]-[revision].[ext]", "-types", "jar", "bundle"]
    settings = os.environ.get("BARNABAS_IVY_SETTINGS")
    if settings:
        command += ["-settings", settings]
    output = ""
    for attempt in range(1, ATTEMPTS + 1):
        shutil.rmtree(incoming, ignore_errors=True)
        print(f"fetching the jars of {home.name} (a minute at most, once) ...", file=sys.stderr, flush=True)
        begin = time.monotonic()
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        output = run.stdout
        names = {path.name for path in incoming.glob("*.jar")} if incoming.is_dir() else set()
        needed = {f"{name}-{rev}.jar" for _, name, rev in wanted}
        if run.returncode == 0 and needed <= names and "FAILED" not in output:
            os.rename(incoming, jars)
            print(f"{len(names)} jars in {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
            return
        print(f"attempt {attempt} of {ATTEMPTS} failed", file=sys.stderr, flush=True)
    tail = "\n".join(output.splitlines()[-25:])
    raise JarsUnavailable(f"Ivy could not fetch the jars of {home.name}; its last lines:\n{tail}")


if __name__ == "__main__":
    try:
        print(f"{len(kafka_jars()) + len(shell_jars())} jars of Apache Kafka {KAFKA_VERSION} ready")
    except (JarsUnavailable, JavaNotFound) as failure:
        sys.exit(str(failure))
