"""Finds jobs by name without importing them, so that `list` needs neither Spark nor a second of waiting.

The job `word-count` is the module `pipeline/jobs/word_count.py`; its generator, if it has one, is
`pipeline/generators/word_count.py`. A name that ends in `.py` is a user's own file.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from pipeline.errors import PipelineError, UnknownJob
from pipeline.generators import START_MS, Event
from pipeline.job import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).resolve().parent


class Generator(Protocol):
    """The `events` function of a generator module."""

    def __call__(self, seed: int, count: int, rate: float, start_ms: int = START_MS) -> Iterator[Event]: ...


Sessions = Callable[[], "SparkSession"]
"""Makes a Spark session when it is needed."""


class Delivery(Protocol):
    """The `deliver` function of a generator module: puts events where the job's settings say, and says where."""

    def __call__(self, made: Iterable[Event], settings: Mapping[str, Any], sessions: Sessions) -> str: ...


def _file(job: str) -> Path:
    if job.endswith(".py"):
        return Path(job)
    return HERE / "jobs" / f"{job.replace('-', '_')}.py"


def names() -> list[str]:
    return sorted(path.stem.replace("_", "-") for path in (HERE / "jobs").glob("*.py") if not path.name.startswith("_"))


def explanation(job: str) -> tuple[str, str]:
    """Title and description: the first line of the module's docstring, and the rest."""
    file = _file(job)
    if not file.is_file():
        raise UnknownJob(f"no job {job!r}; there are: {', '.join(names())}")
    try:
        parsed = ast.parse(file.read_text(), str(file))
    except SyntaxError as mistake:
        raise PipelineError(f"{file}, line {mistake.lineno}: {mistake.msg}") from None
    title, _, description = (ast.get_docstring(parsed) or job).partition("\n")
    return title.rstrip("."), description.strip()


def load(job: str) -> Job:
    explanation(job)  # says so when there is no such job
    module = _own_file(Path(job)) if job.endswith(".py") else importlib.import_module(_module("jobs", job))
    declared = getattr(module, "JOB", None)
    if not isinstance(declared, Job):
        raise PipelineError(f"{module.__file__} has no `JOB = Job(...)`")
    return declared


def generator(job: str) -> Generator:
    explanation(job)
    if job.endswith(".py") or importlib.util.find_spec(_module("generators", job)) is None:
        raise PipelineError(f"job {job} has no generator")
    made: Generator = importlib.import_module(_module("generators", job)).events
    return made


def delivery(job: str) -> Delivery | None:
    """For jobs that read no topic; None when events go to topics."""
    generator(job)
    found: Delivery | None = getattr(importlib.import_module(_module("generators", job)), "deliver", None)
    return found


def _module(folder: str, job: str) -> str:
    return f"pipeline.{folder}.{job.replace('-', '_')}"


def _own_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
