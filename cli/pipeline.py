"""`barnabas pipeline`: lists, describes and runs the Spark jobs of `pipeline/`, feeds them, and draws their runs."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import registry
from pipeline.errors import BadSetting, PipelineError
from pipeline.job import BYTES, COMMON_SETTINGS, TEXT, Context, Job, Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.progress import Progress

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130  # what a shell reports for a program that Ctrl-C ended
KEPT_REPORTS = 100_000  # of a run whose checkpoint is no local directory: some days of micro-batches


def add_parser(commands: Any) -> None:
    """Adds `pipeline` with its verbs to the subcommands of `barnabas`."""
    pipeline = commands.add_parser(
        "pipeline", help="run the data pipeline's Spark jobs", description=__doc__, allow_abbrev=False
    )
    verbs = pipeline.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, text: str) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = verbs.add_parser(
            name, help=text, description=f"{text[0].upper()}{text[1:]}.", allow_abbrev=False
        )
        return made

    verb("list", "list the jobs there are")

    describe = verb("describe", "tell a job's topics, schemas and settings")
    describe.add_argument("job", help="a job's name, or the path of a Python file that declares one")

    run = verb("run", "run a job until Ctrl-C, or until it has read everything")
    run.add_argument("job", help="a job's name, or the path of a Python file that declares one")
    run.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT", help="the broker, or some of them")
    run.add_argument("--checkpoint", required=True, metavar="DIRECTORY", help="where the run's progress is kept")
    run.add_argument("--output", metavar="DIRECTORY", help="files and tables (<checkpoint>/output)")
    run.add_argument("--master", default="local[*]", help="local[*], spark://host:port, yarn, k8s://... (local[*])")
    run.add_argument("--available-now", action="store_true", help="read what there is now, then end")
    run.add_argument("--trigger", metavar="INTERVAL", help='time between micro-batches, such as "10 seconds"')
    run.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the job, see `describe`",
    )
    run.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark")
    run.add_argument("--jars", metavar="DIRECTORY", help="the connector's jars, instead of fetching them by name")
    run.add_argument("--ui", action="store_true", help="serve Spark's web interface")
    run.add_argument(
        "--log-level", default="error", choices=("error", "warn", "info", "debug"), help="of Spark's own log (error)"
    )
    run.add_argument("--report", metavar="FILE", help="the chart, .html or .svg (<checkpoint>/report.html)")

    generate = verb("generate", "send made-up events to a job's topics")
    generate.add_argument("job", help="a job's name")
    generate.add_argument("--bootstrap-server", metavar="HOST:PORT", help="the broker; none for imports")
    generate.add_argument("--count", type=int, default=10_000, help="how many events (10000)")
    generate.add_argument("--rate", type=float, default=100.0, help="events per second of event time (100)")
    generate.add_argument("--seed", type=int, default=1, help="the same seed gives the same events (1)")
    generate.add_argument("--start", metavar="TIME", help="ISO time of the first event (now)")
    generate.add_argument("--live", action="store_true", help="send each event when its time has come")
    generate.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the job: topic.<name>, or a path"
    )
    generate.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark")

    report = verb("report", "draw throughput and lag of a job's last run")
    report.add_argument("job", help="a job's name, or the path of a Python file that declares one")
    report.add_argument("--checkpoint", required=True, metavar="DIRECTORY", help="the run's")
    report.add_argument("--all-runs", action="store_true", help="all runs of this checkpoint, instead of the last")
    report.add_argument("--report", metavar="FILE", help="the chart, .html or .svg (<checkpoint>/report.html)")


def pipeline(options: argparse.Namespace) -> int:
    verbs = {"list": _list, "describe": _describe, "run": _run, "generate": _generate, "report": _report}
    try:
        return verbs[options.verb](options)
    except (PipelineError, OSError) as failure:
        print(f"barnabas pipeline: {failure}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        print("barnabas pipeline: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


def _list(options: argparse.Namespace) -> int:
    for name in registry.names():
        print(f"{name:<22} {registry.explanation(name)[0]}")
    return 0


def _describe(options: argparse.Namespace) -> int:
    title, description = registry.explanation(options.job)
    job = registry.load(options.job)
    print(f"{job.name}: {title}\n\n{description}\n".replace("\n\n\n", "\n\n"))
    for verb, topics in (("Reads", job.reads), ("Writes", job.writes)):
        for topic in topics:
            print(f"{verb} {'topics that match' if topic.pattern else 'topic'} {topic.name}: {topic.doc}")
            print(f"    {_value(topic)}")
    if job.may_meet_malformed_rows:
        print(f"Malformed rows go to topic {job.dead_letter_topic}")
    print("\nSettings (--set name=value; topics are renamed with --set topic.<name>=<other>):")
    for setting in {one.name: one for one in (*COMMON_SETTINGS, *job.settings)}.values():
        kind = f"{setting.name} ({setting.kind.__name__}, default {setting.default!r})"
        print(f"    {kind:<58} {setting.doc}")
    return 0


def _value(topic: Topic) -> str:
    plain = {TEXT: "value: UTF-8 text", BYTES: "value: any bytes"}
    value = plain.get(topic.value, f"value: JSON object of {topic.value}")
    return value + (f"; where {topic.check}" if topic.check else "")


def pairs(given: list[str], option: str) -> dict[str, str]:
    split = [text.partition("=") for text in given]
    for name, equals, _ in split:
        if not name or not equals:
            raise BadSetting(f"{option} takes name=value, not {name!r}")
    return {name: value for name, _, value in split}


def _run(options: argparse.Namespace) -> int:
    job = registry.load(options.job)
    settings = pairs(options.set, "--set")
    conf = pairs(options.conf, "--conf")
    Context.check_settings(job, settings)  # before the seconds that Spark needs to start
    report = _report_path(options)
    from pipeline.progress import FILE_NAME, HEAD, append, begin_run, line
    from pipeline.run import Run, RunOptions
    from pipeline.session import build_session, end_session, require_spark
    from pipeline.wire import reach

    require_spark()
    reach(options.bootstrap_server)
    stops: list[int] = []
    run: Run | None = None

    def stop(number: int, frame: Any) -> None:
        """The first is heeded once Spark is there to be ended in order: a JVM that still starts would stay behind."""
        if stops:
            raise KeyboardInterrupt  # the second one: no more patience
        stops.append(number)
        if run is not None:
            run.stop()

    def watch_signals() -> None:
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGTERM, stop)

    watch_signals()
    spark = build_session(
        f"barnabas {job.name}",
        options.master,
        jars=options.jars,
        conf=conf,
        ui=options.ui,
        log_level=options.log_level,
    )
    run = Run(
        spark,
        job,
        RunOptions(
            options.bootstrap_server,
            options.checkpoint,
            output=options.output,
            settings=settings,
            available_now=options.available_now,
            trigger=options.trigger,
        ),
    )
    watch_signals()  # again: pyspark's own handler would cancel the jobs under the queries, which then fail
    if stops:
        end_session(spark)
        raise KeyboardInterrupt
    seen: deque[Progress] = deque(maxlen=KEPT_REPORTS)
    recorded = _local(options.checkpoint)
    if recorded is not None:
        recorded.mkdir(parents=True, exist_ok=True)
        begin_run(recorded / FILE_NAME, time.time())

    def show(progress: Progress) -> None:
        seen.append(progress)
        print(line(progress), flush=True)
        if recorded is not None:
            append(recorded / FILE_NAME, [progress])

    try:
        run.start()
        print(HEAD, flush=True)
        run.follow(show)
    finally:
        end_session(spark)
        if seen and report is not None:
            _draw(report, job, list(seen))
    if stops:
        print("stopped; the same command goes on from its checkpoint")
    return 0


def _local(path: str) -> Path | None:
    """The directory, unless it lies on another file system of Spark's."""
    if path.startswith("file:"):
        return Path("/" + path.removeprefix("file:").lstrip("/"))
    return None if "://" in path else Path(path)


def _report_path(options: argparse.Namespace) -> Path | None:
    if options.report is None:
        checkpoint = _local(options.checkpoint)
        return None if checkpoint is None else checkpoint / "report.html"
    path = Path(options.report)
    if path.suffix not in (".html", ".svg"):
        raise BadSetting(f"--report {options.report!r} ends neither in .html nor in .svg")
    return path


def _draw(path: Path, job: Job, progress: Sequence[Progress]) -> None:
    from pipeline.report import write_report

    path.parent.mkdir(parents=True, exist_ok=True)
    write_report(path, f"barnabas pipeline: {job.name}", progress)
    print(f"chart of throughput and lag: {path}")


def _report(options: argparse.Namespace) -> int:
    from pipeline.progress import FILE_NAME, load

    job = registry.load(options.job)
    path = _report_path(options)
    checkpoint = _local(options.checkpoint)
    recorded = None if checkpoint is None else checkpoint / FILE_NAME
    if recorded is None or path is None:
        raise PipelineError("only runs with a local checkpoint are recorded; the others take --report when they run")
    if not recorded.is_file():
        raise PipelineError(f"{recorded} is not there: no run of {job.name} had this checkpoint")
    runs = load(recorded)
    if not runs:
        raise PipelineError(f"{recorded} holds no micro-batch yet")
    _draw(path, job, [one for run in runs for one in run] if options.all_runs else runs[-1])
    return 0


def _generate(options: argparse.Namespace) -> int:
    job = registry.load(options.job)
    events = registry.generator(options.job)
    deliver = registry.delivery(options.job)
    if options.count < 0 or options.rate <= 0:
        raise BadSetting("--count takes no negative number, and --rate one above 0")
    start = time.time()
    if options.start is not None:
        try:
            start = datetime.fromisoformat(options.start).timestamp()
        except ValueError:
            raise BadSetting(f"--start {options.start!r} is no ISO time") from None
    made = events(options.seed, options.count, options.rate, int(start * 1000))
    settings, topics = Context.check_settings(job, pairs(options.set, "--set"))
    began = time.monotonic()
    if deliver is not None:
        print(deliver(made, settings, lambda: _plain_session(pairs(options.conf, "--conf"))))
        return 0
    if options.bootstrap_server is None:
        raise BadSetting(f"job {job.name} reads topics, so --bootstrap-server is needed")
    from pipeline.generate import send_events

    sent = send_events(job, options.bootstrap_server, made, topics, live=options.live)
    print(f"{sent:,} events sent in {time.monotonic() - began:.1f} s")
    return 0


def _plain_session(conf: dict[str, str]) -> SparkSession:
    """For generators that write to a database."""
    from pipeline.session import build_session

    return build_session("barnabas generate", connector=False, conf=conf)
