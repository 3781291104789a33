"""The `barnabas` command: picks the subcommand and leaves the rest to its module."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def parser(command: str = "") -> argparse.ArgumentParser:
    """The parser for `command`: of the others it knows only the names, because a broker's start must not wait for
    the import of what it does not use.
    """
    made = argparse.ArgumentParser(
        prog="barnabas", description="A broker daemon that speaks Kafka's wire protocol.", allow_abbrev=False
    )
    made.add_argument("--version", action="store_true", help="print the version and exit")
    commands = made.add_subparsers(dest="command", metavar="COMMAND")
    start = commands.add_parser(
        "server-start",
        help="start a node from a properties file",
        description="Starts a node and runs it in the foreground until SIGTERM or Ctrl-C.",
        allow_abbrev=False,
    )
    start.add_argument("properties", help="the node's server.properties")
    start.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting that wins over the file; may be given several times",
    )
    if command == "pipeline":
        from cli.pipeline import add_parser

        add_parser(commands)
    else:
        commands.add_parser("pipeline", help="run the data pipeline's Spark jobs")
    from cli import cluster, storage

    cluster.add_parser(commands)
    storage.add_parser(commands)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else list(arguments)
    options = parser(words[0] if words else "").parse_args(words)
    if options.version:
        from cli.version import version

        print(f"barnabas {version()}")
        return 0
    if options.command == "server-start":
        from cli.server_start import server_start

        return server_start(options.properties, options.override)
    if options.command == "cluster":
        from cli.cluster import cluster

        return cluster(options)
    if options.command == "storage":
        from cli.storage import storage

        return storage(options)
    if options.command == "pipeline":
        from cli.pipeline import pipeline

        return pipeline(options)
    parser().print_help(sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
