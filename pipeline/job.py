"""How a job is declared: its topics with their schemas, its settings, and the function that builds its outputs.

A job is a module with a docstring (first line: the title, the rest: the description), a `JOB = Job(...)` and a
`build(context)` that returns outputs. It says *what* is computed. Everything else (session, parsing, dead letters,
checkpoints, sinks, progress) is the framework's, so that a job reads like its own explanation.
`pipeline/jobs/word_count.py` is the smallest example.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from pipeline.errors import BadSetting, PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T", str, int, float, bool)

TEXT = "text"  # the value is UTF-8 text: column `value` is a string
BYTES = "bytes"  # the value is anything, null included: column `value` is binary, and nothing is malformed


@dataclass(frozen=True)
class Topic:
    """A topic that a job reads or writes. Users rename it with `--set topic.<name>=<other name>`.

    `value` is TEXT, BYTES, or the fields of a JSON object as Spark DDL (`"user STRING NOT NULL, likes BIGINT"`).
    Rows that are no such object, lack a NOT NULL field, or fail `check` (a SQL condition over the columns, such as
    `"value.likes >= 0"`) go to the job's dead-letter topic. With `pattern` the name is a regular expression
    that whole names of topics match.
    """

    name: str
    value: str
    doc: str
    key: Literal["text", "bytes"] = "text"
    check: str | None = None
    pattern: bool = False
    partitions: int = 1
    configs: Mapping[str, str] | None = None
    """`partitions` and `configs` are for topics that do not exist yet when a run or a generator starts."""


@dataclass(frozen=True)
class Setting(Generic[T]):
    """A knob of a job, given as `--set name=value`; read in `build` as `context[SETTING]`, with its type."""

    name: str
    kind: type[T]
    default: T
    doc: str

    def parse(self, text: str) -> T:
        try:
            if self.kind is bool:
                return self.kind({"true": True, "false": False}[text.lower()])
            return self.kind(text)
        except (KeyError, ValueError):
            raise BadSetting(f"setting {self.name}={text!r} is no {self.kind.__name__}") from None


@dataclass(frozen=True)
class TopicSink:
    """Rows become records of a topic: at least once, and in order per key.

    `value` is one column as it is (string or binary), or several that become one JSON object. With `timestamp` (a
    column) the records carry that time instead of the time of writing; Spark's own sink cannot, so these rows leave
    through our producer, which also knows these two: `topic_column` names each row's topic instead of `topic`, and one
    that does not exist is made with as many partitions as the topic of the run's cluster that `like` (a column) names;
    `partition` (a column) is kept where the topic has such a partition.
    """

    topic: str
    value: str | Sequence[str]
    key: str | None = None
    headers: str | None = None
    timestamp: str | None = None
    topic_column: str | None = None
    like: str | None = None
    partition: str | None = None
    bootstrap_servers: str | None = None
    """Another cluster than the run's, for mirrors."""


@dataclass(frozen=True)
class ParquetSink:
    """Rows are appended to Parquet files, exactly once. A relative `path` lies in the run's output directory."""

    path: str
    partition_by: Sequence[str] = ()


@dataclass(frozen=True)
class FileSink:
    """Like ParquetSink, for any format of Spark's (`json`, `csv`, `text`, `orc`)."""

    path: str
    format: str
    partition_by: Sequence[str] = ()
    options: Mapping[str, str] | None = None


@dataclass(frozen=True)
class TableSink:
    """Rows replace those with the same `keys` in a table of the run's SQLite database, exactly once.

    A micro-batch and its number are one transaction, so a batch that is repeated after a crash changes nothing. In
    complete mode a batch replaces the whole table.
    """

    table: str
    keys: Sequence[str]


@dataclass(frozen=True)
class JdbcSink:
    """Rows go to a table of any database that has a JDBC driver, exactly once.

    Each micro-batch lands in a staging table, from which one transaction moves it and notes its number. With `keys`
    rows replace those with the same keys, otherwise they are added.
    """

    url: str
    table: str
    keys: Sequence[str] = ()
    properties: Mapping[str, str] | None = None
    """`user`, `password`, `driver` and whatever else the driver takes."""


Sink = TopicSink | ParquetSink | FileSink | TableSink | JdbcSink


@dataclass(frozen=True)
class Output:
    """One query of a job. `name` is also its checkpoint's, so it must not change between runs.

    Rows that do not stream (a batch read in `build`) are written once.
    """

    name: str
    rows: DataFrame
    sink: Sink
    mode: Literal["append", "update", "complete"] = "append"


@dataclass(frozen=True)
class Job:
    """`name` is the module's, with dashes; title and description are the module's docstring."""

    name: str
    build: Callable[[Context], Sequence[Output]]
    reads: Sequence[Topic] = ()
    writes: Sequence[Topic] = ()
    settings: Sequence[Setting[Any]] = ()

    @property
    def dead_letter_topic(self) -> str:
        return f"{self.name}-dead-letters"

    @property
    def may_meet_malformed_rows(self) -> bool:
        """A job that reads nothing but bytes cannot; one that reads no topic reads files or a database."""
        return not self.reads or any(topic.value != BYTES or topic.check is not None for topic in self.reads)

    def topic(self, name: str) -> Topic:
        for topic in (*self.reads, *self.writes):
            if topic.name == name:
                return topic
        raise PipelineError(f"job {self.name} declares no topic {name!r}")


WATERMARK = Setting("watermark", str, "10 minutes", "how late an event may be before windows close without it")
STARTING_OFFSETS = Setting("starting_offsets", str, "earliest", "where a first run begins: earliest, latest or JSON")
MAX_OFFSETS = Setting("max_offsets_per_trigger", int, 0, "at most this many records per micro-batch; 0: no limit")
FAIL_ON_DATA_LOSS = Setting("fail_on_data_loss", bool, True, "stop when records are gone before they were read")

COMMON_SETTINGS: tuple[Setting[Any], ...] = (WATERMARK, STARTING_OFFSETS, MAX_OFFSETS, FAIL_ON_DATA_LOSS)
"""Settings that every job has. A job may declare one of these names again, with another default."""


class Context:
    """What `build` gets: the session, the settings as given, and the reader of topics."""

    def __init__(
        self, spark: SparkSession, job: Job, bootstrap_servers: str, given: Mapping[str, str] | None = None
    ) -> None:
        self.spark = spark
        self.job = job
        self.bootstrap_servers = bootstrap_servers
        self.sources: dict[tuple[str, str], DataFrame] = {}
        """Every row as it was read, parsed or not, by topic and cluster: the dead-letter query is made of these."""
        self._values, self._topics = self.check_settings(job, given or {})

    @staticmethod
    def check_settings(job: Job, given: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
        """Settings with their values and topics with their real names; BadSetting when something is wrong."""
        settings = {setting.name: setting for setting in (*COMMON_SETTINGS, *job.settings)}
        values = {name: setting.default for name, setting in settings.items()}
        topics = {name: name for name in (*(topic.name for topic in (*job.reads, *job.writes)), job.dead_letter_topic)}
        for name, text in given.items():
            if name.startswith("topic.") and name[6:] in topics:
                topics[name[6:]] = text
            elif name in settings:
                values[name] = settings[name].parse(text)
            else:
                known = ", ".join([*settings, *(f"topic.{topic}" for topic in topics)])
                raise BadSetting(f"job {job.name} has no setting {name!r}; it has: {known}")
        return values, topics

    def __getitem__(self, setting: Setting[T]) -> T:
        value: T = self._values[setting.name]
        return value

    def topic_name(self, name: str) -> str:
        """The real name of a declared topic, after `--set topic.<name>=...`."""
        return self._topics.get(name, name)

    def read(self, name: str, *, bootstrap_servers: str | None = None) -> DataFrame:
        """The declared topic as a stream of its well-formed rows.

        Columns: `key` (string, or binary for key="bytes"), `value` (a struct of the declared fields, or a string, or
        binary), `timestamp`, `headers` (array of struct<key: string, value: binary>, null when there are none),
        `topic`, `partition`, `offset`. The others go to the dead-letter topic with the reason.
        """
        from pipeline.topics import read_topic, well_formed

        servers = bootstrap_servers or self.bootstrap_servers
        topic = self.job.topic(name)
        source = read_topic(self, topic, servers)
        if topic.value != BYTES or topic.check is not None:
            self.sources[name, servers] = source
        return well_formed(source)

    def has_checkpoint(self, path: str) -> bool:
        """Whether a query has run with this checkpoint before, on whatever file system it lies."""
        jvm: Any = self.spark._jvm
        file = jvm.org.apache.hadoop.fs.Path(f"{path}/metadata")
        return bool(file.getFileSystem(self.spark._jsc.hadoopConfiguration()).exists(file))

    def watermark(self, rows: DataFrame, column: str = "timestamp") -> DataFrame:
        """`rows` with the job's `watermark` setting on an event-time column."""
        return rows.withWatermark(column, self[WATERMARK])
