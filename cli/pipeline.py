"""`barnabas pipeline`: lists, describes and runs the Spark jobs of `pipeline/`, feeds them, and draws their runs."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from pipeline import registry
from pipeline.errors import BadSetting, PipelineError
from pipeline.job import BYTES, COMMON_SETTINGS, TEXT, Context, Job, Topic

EXIT_FAILED = 1


def add_parser(commands: Any) -> None:
    """Adds `pipeline` with its verbs to the subcommands of `barnabas`."""
    pipeline = commands.add_parser(
        "pipeline", help="run the data pipeline's Spark jobs", description=__doc__, allow_abbrev=False
    )
    verbs = pipeline.add_subparsers(dest="verb", metavar="VERB", required=True)
    verbs.add_parser("list", help="the jobs there are", allow_abbrev=False)

    describe = verbs.add_parser("describe", help="a job's topics, schemas and settings", allow_abbrev=False)
    describe.add_argument("job")

    run = verbs.add_parser("run", help="run a job until Ctrl-C, or until it has read everything", allow_abbrev=False)
    run.add_argument("job", help="a job's name, or the path of a Python file that declares one")
    run.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT")
    run.add_argument("--checkpoint", required=True, metavar="DIRECTORY", help="where the run's progress is kept")
    run.add_argument("--output", metavar="DIRECTORY", help="files and tables (default: <checkpoint>/output)")
    run.add_argument("--master", default="local[*]", help="local[*], spark://host:port, yarn, k8s://... (local[*])")
    run.add_argument("--available-now", action="store_true", help="read what there is now, then end")
    run.add_argument("--trigger", metavar="INTERVAL", help='time between micro-batches, such as "10 seconds"')
    run.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the job")
    run.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark")
    run.add_argument("--jars", metavar="DIRECTORY", help="the connector's jars, instead of fetching them by name")
    run.add_argument("--ui", action="store_true", help="serve Spark's web interface")
    run.add_argument("--log-level", default="error", help="of Spark's own log (error)")
    run.add_argument("--report", metavar="FILE", help="the chart, .html or .svg (<checkpoint>/report.html)")

    generate = verbs.add_parser("generate", help="send made-up events to a job's topics", allow_abbrev=False)
    generate.add_argument("job")
    generate.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT")
    generate.add_argument("--count", type=int, default=10_000, help="how many events (10000)")
    generate.add_argument("--rate", type=float, default=100.0, help="events per second of event time (100)")
    generate.add_argument("--seed", type=int, default=1, help="the same seed gives the same events (1)")
    generate.add_argument("--start", metavar="TIME", help="ISO time of the first event (now)")
    generate.add_argument("--live", action="store_true", help="send each event when its time has come")
    generate.add_argument("--set", action="append", default=[], metavar="topic.NAME=VALUE", help="rename a topic")

    report = verbs.add_parser("report", help="draw throughput and lag of a job's runs", allow_abbrev=False)
    report.add_argument("job")
    report.add_argument("--checkpoint", required=True, metavar="DIRECTORY")
    report.add_argument("--report", metavar="FILE", help="the chart, .html or .svg (<checkpoint>/report.html)")


def pipeline(options: argparse.Namespace) -> int:
    verbs = {"list": _list, "describe": _describe, "run": _run, "generate": _generate, "report": _report}
    try:
        return verbs[options.verb](options)
    except PipelineError as failure:
        print(f"barnabas pipeline: {failure}", file=sys.stderr)
        return EXIT_FAILED


def _list(options: argparse.Namespace) -> int:
    for name in registry.names():
        print(f"{name:<22} {registry.explanation(name)[0]}")
    return 0


def _describe(options: argparse.Namespace) -> int:
    title, description = registry.explanation(options.job)
    job = registry.load(options.job)
    print(f"{job.name}: {title}\n\n{description}\n")
    for verb, topics in (("Reads", job.reads), ("Writes", job.writes)):
        for topic in topics:
            print(f"{verb} {'topics that match' if topic.pattern else 'topic'} {topic.name}: {topic.doc}")
            print(f"    {_value(topic)}")
    if job.reads:
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
    from pipeline.progress import FILE_NAME, HEAD, Progress, append, line
    from pipeline.run import Run, RunOptions
    from pipeline.session import build_session

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
    stopped = False

    def stop(number: int, frame: Any) -> None:
        nonlocal stopped
        stopped = True
        run.stop()

    # pyspark's own handler would cancel the jobs under the queries, which then fail instead of ending.
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    local = Path(options.checkpoint.removeprefix("file://")) if _is_local(options.checkpoint) else None
    if local is not None:
        local.mkdir(parents=True, exist_ok=True)
    seen: list[Progress] = []

    def show(progress: Progress) -> None:
        seen.append(progress)
        print(line(progress), flush=True)
        if local is not None:
            append(local / FILE_NAME, [progress])

    try:
        run.start()
        print(HEAD, flush=True)
        run.follow(show)
    finally:
        spark.stop()
        if seen and report is not None:
            _draw(report, job, seen)
    if stopped:
        print("stopped; the same command goes on from its checkpoint")
    return 0


def _is_local(path: str) -> bool:
    return "://" not in path or path.startswith("file://")


def _report_path(options: argparse.Namespace) -> Path | None:
    if options.report is not None:
        return Path(options.report)
    checkpoint: str = options.checkpoint
    return Path(checkpoint.removeprefix("file://")) / "report.html" if _is_local(checkpoint) else None


def _draw(path: Path, job: Job, progress: Any) -> None:
    from pipeline.report import write_report

    write_report(path, f"barnabas pipeline: {job.name}", progress)
    print(f"chart of throughput and lag: {path}")


def _report(options: argparse.Namespace) -> int:
    from pipeline.progress import FILE_NAME, load

    job = registry.load(options.job)
    recorded = Path(options.checkpoint.removeprefix("file://")) / FILE_NAME
    if not recorded.is_file():
        raise PipelineError(f"{recorded} is not there: no run of {job.name} had this checkpoint")
    path = _report_path(options)
    assert path is not None
    _draw(path, job, load(recorded))
    return 0


def _generate(options: argparse.Namespace) -> int:
    from pipeline.generate import send_events

    job = registry.load(options.job)
    events = registry.generator(options.job)
    names = {name.removeprefix("topic."): value for name, value in pairs(options.set, "--set").items()}
    unknown = set(names) - {topic.name for topic in (*job.reads, *job.writes)}
    if unknown:
        raise BadSetting(f"job {job.name} declares no topic {', '.join(sorted(unknown))}")
    start = time.time()
    if options.start is not None:
        try:
            start = datetime.fromisoformat(options.start).timestamp()
        except ValueError:
            raise BadSetting(f"--start {options.start!r} is no ISO time") from None
    made = events(options.seed, options.count, options.rate, int(start * 1000))
    began = time.monotonic()
    sent = send_events(job, options.bootstrap_server, made, names, live=options.live)
    print(f"{sent:,} events sent in {time.monotonic() - began:.1f} s")
    return 0
