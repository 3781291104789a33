"""What a user of the pipeline did or lacks; the message is the one line they need."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager


class PipelineError(Exception):
    """Shown as one line, without a traceback."""


class NotInstalled(PipelineError):
    """pyspark or Java is missing; the message says what to install."""


class UnknownJob(PipelineError):
    pass


class BadSetting(PipelineError):
    pass


@contextmanager
def spark_says(doing: str) -> Iterator[None]:
    """What Spark refuses inside (a schema that does not parse, a master that is not there) becomes a PipelineError.

    Told apart by the module of its class, because this module must not import pyspark. Mistakes of our own keep their
    traceback.
    """
    try:
        yield
    except Exception as failure:
        if not (isinstance(failure, ConnectionError) or type(failure).__module__.startswith(("pyspark.", "py4j."))):
            raise
        raise PipelineError(f"{doing}: {one_line(str(failure))}") from failure


PYTHON_ERROR = re.compile(r"(?!py4j|org\.|java)[\w.]*(?:Error|Exception|Setting|Retry): .+")


def one_line(text: str) -> str:
    """What a user can act on of a failure in Java: its first line and the innermost cause; or the error in our Python.

    Spark wraps what goes wrong in a function of ours in a Python traceback inside a Java one, both ways and repeatedly.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    ours = [line for line in lines if PYTHON_ERROR.match(line)]
    if ours and "Traceback (most recent call last)" in text:
        return ours[-1].removeprefix("pipeline.errors.PipelineError: ")
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling "):  # py4j's; the failure comes next
        lines = lines[1:]
    causes = [line.strip().removeprefix("Caused by: ") for line in lines if line.strip().startswith("Caused by: ")]
    return " / ".join(dict.fromkeys([lines[0].strip().removeprefix(": ") if lines else "", *causes[-1:]]))
