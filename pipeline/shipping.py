"""Our Python packages on the workers of a cluster, so that nobody has to install them there.

Records that keep their own time leave through our producer, in Python workers. A worker's directory of files is on its
path, and Spark unpacks an archive there under the name after `#`: an archive per package is all it takes. The one
package with compiled code is crc32c; it fits workers of the driver's platform and Python version, which Spark's own
pickling demands of the latter anyway.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = ("pipeline", "protocol", "crc32c")


def ship_packages(spark: SparkSession) -> None:
    """Executors fetch the archives when they first need them, so these stay until the driver ends."""
    here = tempfile.mkdtemp(prefix="barnabas-packages-")
    atexit.register(shutil.rmtree, here, ignore_errors=True)
    for directory in directories():
        archive = shutil.make_archive(f"{here}/{directory.name}", "zip", directory)
        spark.sparkContext.addArchive(f"{archive}#{directory.name}")


def directories() -> list[Path]:
    """Every package's, and what crc32c reads about itself when it is imported."""
    found = []
    for package in PACKAGES:
        spec = find_spec(package)
        assert spec is not None and spec.submodule_search_locations, package
        found.append(Path(spec.submodule_search_locations[0]))
    files = distribution("crc32c").files or []
    metadata = next(file for file in files if file.name == "METADATA")
    return [*found, Path(str(metadata.locate())).parent]
