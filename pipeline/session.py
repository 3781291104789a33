"""The one place where a Spark session is made: connector, log level, master, clear words when something is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import NotInstalled, PipelineError, spark_says
from pipeline.shipping import ship_packages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).resolve().parent
MINIMUM_JAVA = 17  # Spark 4's
INSTALL_JAVA = (
    f"Spark needs Java {MINIMUM_JAVA} or later: install a JRE (Debian: default-jre-headless) or set JAVA_HOME"
)


def require_spark() -> str:
    """pyspark's version, or the one line that says what to install."""
    if find_spec("pyspark") is None:
        raise NotInstalled(
            "the pipeline runs on Spark: pip install 'barnabas[pipeline]' (in a clone: pip install -e '.[pipeline]')"
        )
    _require_java()
    from pyspark.version import __version__

    return __version__


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None:
        raise NotInstalled(INSTALL_JAVA)
    try:
        run = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        raise NotInstalled(f"{java} does not run; {INSTALL_JAVA}") from None
    found = re.search(r'version "(?:1\.)?(\d+)', run.stderr + run.stdout)
    if found is None or int(found.group(1)) < MINIMUM_JAVA:
        raise NotInstalled(f"{java} is {found.group(0) if found else 'no Java'}; {INSTALL_JAVA}")


def connector_package(version: str) -> str:
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"


def build_session(
    name: str,
    master: str = "local[*]",
    *,
    jars: str | None = None,
    connector: bool = True,
    conf: Mapping[str, str] | None = None,
    ui: bool = False,
    log_level: str = "error",
) -> SparkSession:
    """A session with the Kafka connector, unless `connector` is false.

    The connector comes by its package name, fetched by Spark; with `jars`, a directory that already holds it, nothing
    is fetched. `conf` wins over everything that is set here.
    """
    version = require_spark()
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": str(ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile={(HERE / 'log4j2.properties').as_uri()} -Dpipeline.log.level={log_level}"
        ),
    }
    local = master.startswith("local")
    if local:
        # One process computes everything: Spark's 200 shuffle partitions would be 200 tasks for nothing, and the
        # loopback address keeps the session independent of the host's name and network.
        settings["spark.sql.shuffle.partitions"] = str(_cores(master))
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
        # Python workers find this package even when it is a source tree that nobody installed.
        settings["spark.executorEnv.PYTHONPATH"] = str(HERE.parent)
    if not connector:
        pass  # for what reads and writes no topic
    elif jars is None:
        settings["spark.jars.packages"] = connector_package(version)
    else:
        found = sorted(Path(jars).glob("*.jar"))
        if not any(path.name.startswith("spark-sql-kafka-0-10") for path in found):
            raise PipelineError(f"{jars} does not hold {connector_package(version)}")
        settings["spark.jars"] = ",".join(str(path.resolve()) for path in found)
    builder = SparkSession.builder.appName(name).master(master)
    settings |= conf or {}
    for key, value in settings.items():
        builder = builder.config(key, value)
    _choose_python(settings.get("spark.pyspark.python"), local)
    try:
        with spark_says(f"Spark does not start on {master}"):
            spark = builder.getOrCreate()
            if not local:
                ship_packages(spark)
    except KeyboardInterrupt:
        _kill_jvm()
        raise
    return spark


def _kill_jvm() -> None:
    """One that is interrupted while it starts does not end by itself when its Python has gone."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()


def end_session(spark: SparkSession) -> None:
    """A session whose JVM was killed has ended already."""
    with suppress(PipelineError), spark_says("Spark does not end"):
        spark.stop()


def _choose_python(given: str | None, local: bool) -> None:
    """pyspark reads the workers' Python from the environment only, and takes the first `python3` of the path.

    On this machine that may be one without our packages or of another version; on a cluster it is all we know.
    """
    if given is not None:
        os.environ["PYSPARK_PYTHON"] = given
    elif local:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _cores(master: str) -> int:
    given = re.match(r"local\[(\d+)", master)
    return int(given.group(1)) if given else (os.cpu_count() or 1) if "*" in master else 1
