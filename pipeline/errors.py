"""What a user of the pipeline did or lacks; the message is the one line they need."""

from __future__ import annotations


class PipelineError(Exception):
    """Shown as one line, without a traceback."""


class NotInstalled(PipelineError):
    """pyspark or Java is missing; the message says what to install."""


class UnknownJob(PipelineError):
    pass


class BadSetting(PipelineError):
    pass
