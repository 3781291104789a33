"""The stock Kafka connector of the installed pyspark's version, fetched once into the cache of `support.jars`.

Users name the package and Spark fetches it; tests give the jars as a directory, so that every run after the first
needs no network. What pyspark's own jars already hold is left out.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from support.jars import ATTEMPTS, JarsUnavailable, cache_directory, ivy_jar, pyspark_jars
from support.java import JavaNotFound, find_java

# Everything of these that the connector needs is among pyspark's jars.
_PROVIDED = (
    "org.apache.hadoop",
    "org.slf4j",
    "org.scala-lang",
    "org.lz4",
    "org.xerial.snappy",
    "com.google.code.findbugs",
)


def connector_directory() -> Path:
    """The directory with the connector's jars, complete or not there at all."""
    spark = version("pyspark")
    home = cache_directory() / f"spark-sql-kafka-{spark}"
    jars = home / "jars"
    if not jars.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        with open(home / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not jars.is_dir():
                _fetch(spark, home, jars)
    return jars


def _fetch(spark: str, home: Path, jars: Path) -> None:
    incoming = home / "incoming"
    module = home / "ivy.xml"
    excludes = "".join(f'<exclude org="{organisation}"/>' for organisation in _PROVIDED)
    module.write_text(f"""<ivy-module version="2.0">
  <info organisation="barnabas" module="spark-connector"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.spark" name="spark-sql-kafka-0-10_2.13" rev="{spark}" conf="default->default"/>
    {excludes}
  </dependencies>
</ivy-module>
""")
    command = [find_java(), "-jar", ivy_jar(), "-ivy", str(module), "-confs", "default"]
    command += ["-cache", str(cache_directory() / "ivy")]
    command += ["-retrieve", f"{incoming}/[artifact]-[revision].[ext]", "-types", "jar", "bundle"]
    settings = os.environ.get("BARNABAS_IVY_SETTINGS")
    if settings:
        command += ["-settings", settings]
    output = ""
    for _ in range(ATTEMPTS):
        shutil.rmtree(incoming, ignore_errors=True)
        print(f"fetching Spark {spark}'s Kafka connector (once) ...", file=sys.stderr, flush=True)
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        output = run.stdout
        found = incoming.is_dir() and list(incoming.glob(f"spark-sql-kafka-0-10_2.13-{spark}.jar"))
        if run.returncode == 0 and found and "FAILED" not in output:
            for path in incoming.glob("*.jar"):
                if (pyspark_jars() / path.name).exists():
                    path.unlink()
            os.rename(incoming, jars)
            return
    tail = "\n".join(output.splitlines()[-25:])
    raise JarsUnavailable(f"Ivy could not fetch Spark {spark}'s Kafka connector; its last lines:\n{tail}")


if __name__ == "__main__":
    try:
        print(f"{len(list(connector_directory().glob('*.jar')))} jars of Spark's Kafka connector ready")
    except (JarsUnavailable, JavaNotFound) as failure:
        sys.exit(str(failure))
