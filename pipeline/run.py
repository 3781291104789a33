"""Runs a job: makes its topics, starts its queries, follows their progress, ends them in order."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipeline import sinks
from pipeline.errors import PipelineError, one_line, spark_says
from pipeline.job import Context, Job, Output, TopicSink
from pipeline.progress import Progress, from_spark
from pipeline.topics import dead_letters
from pipeline.wire import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.2  # how soon a finished micro-batch shows on the terminal
DEAD_LETTERS = "dead-letters"


@dataclass(frozen=True)
class RunOptions:
    bootstrap_servers: str
    checkpoint: str
    """A directory: the queries' checkpoints lie in `checkpoints/`, and unless `output` says otherwise, files and
    tables in `output/`."""
    output: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    available_now: bool = False
    """Read what there is now, then end."""
    trigger: str | None = None
    """Time between micro-batches, such as "10 seconds"; without it the next begins when the last has ended."""


class Run:
    """One run of one job on a session. `follow` blocks; `stop` may come from another thread or a signal handler."""

    def __init__(self, spark: SparkSession, job: Job, options: RunOptions) -> None:
        self.context = Context(spark, job, options.bootstrap_servers, options.settings)
        self.place = sinks.Place(options.checkpoint, options.output or f"{options.checkpoint.rstrip('/')}/output")
        self.queries: list[StreamingQuery] = []
        self._trigger: dict[str, Any] = {"availableNow": True} if options.available_now else {}
        if options.trigger is not None and not options.available_now:
            self._trigger = {"processingTime": options.trigger}
        self._trigger = self._trigger or {"processingTime": "0 seconds"}
        self._seen: dict[str, str] = {}
        self._written: list[Progress] = []
        """What was written at once, still to be told of."""
        self._stopping = threading.Event()

    def start(self) -> None:
        create_topics(self.context)
        try:
            with spark_says(f"job {self.context.job.name} does not start"):
                for output in self._outputs():
                    if output.rows.isStreaming:
                        self.queries.append(sinks.start(self.context, output, self.place, self._trigger))
                    else:
                        self._written.append(sinks.write_once(self.context, output, self.place))
        except BaseException:
            self.stop_queries()
            raise

    def _outputs(self) -> list[Output]:
        """The job's own, and the one that keeps what the job cannot read."""
        outputs = list(self.context.job.build(self.context))
        if self.context.sources:
            letters = dead_letters(list(self.context.sources.values()))
            sink = TopicSink(self.context.job.dead_letter_topic, value="value", key="key", headers="headers")
            outputs.append(Output(DEAD_LETTERS, letters, sink))
        return outputs

    def follow(self, on_progress: Callable[[Progress], None] = lambda progress: None) -> None:
        """Until all queries have ended, or one fails (then the others are stopped), or `stop`."""
        with spark_says(f"job {self.context.job.name} lost Spark"):
            try:
                while not self._stopping.is_set():
                    active = [query for query in self.queries if query.isActive]
                    self._report(on_progress)
                    for query in self.queries:
                        self._raise_failure(query)
                    if not active:
                        break
                    self._stopping.wait(POLL_S)
            finally:
                self.stop_queries()
                self._report(on_progress)

    def stop(self) -> None:
        self._stopping.set()

    def stop_queries(self) -> None:
        """What a query has written of an unfinished micro-batch it writes again next time, from its checkpoint."""
        for query in self.queries:
            query.stop()

    def _report(self, on_progress: Callable[[Progress], None]) -> None:
        while self._written:
            on_progress(self._written.pop(0))
        for query in self.queries:
            name = str(query.name)
            for report in self._new(name, [_as_mapping(one) for one in query.recentProgress]):
                on_progress(from_spark(name, report))

    def _new(self, name: str, reports: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        last = self._seen.get(name, "")
        new = [report for report in reports if report["timestamp"] > last]
        if new:
            self._seen[name] = new[-1]["timestamp"]
        return new

    @staticmethod
    def _raise_failure(query: StreamingQuery) -> None:
        failure = None if query.isActive else query.exception()
        if failure is not None:
            raise PipelineError(f"query {query.name} failed: {one_line(str(failure))}") from failure


def _as_mapping(report: Any) -> Mapping[str, Any]:
    loaded: Mapping[str, Any] = json.loads(report.json) if hasattr(report, "json") else dict(report)
    return loaded


def create_topics(context: Context) -> None:
    """Those that the job declares and that do not exist: the connector refuses to read what is not there."""
    job = context.job
    wanted = [
        (context.topic_name(topic.name), topic.partitions, topic.configs or {})
        for topic in (*job.reads, *job.writes)
        if not topic.pattern
    ]
    if job.may_meet_malformed_rows:
        wanted.append((context.topic_name(job.dead_letter_topic), 1, {}))
    cluster = Cluster(context.bootstrap_servers)
    try:
        cluster.patiently(lambda: cluster.create_topics(wanted))
    finally:
        cluster.close()
