"""`barnabas storage`: prepares and shows a node's log directories, with the flags of kafka-storage.sh."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(commands: Any) -> None:
    storage = commands.add_parser(
        "storage",
        help="format a node's log directories, or show what is in them",
        description="Prepares the log directories of a node before its first start. A single combined node does this "
        "by itself; every node of a larger cluster is formatted with the same cluster id.",
        allow_abbrev=False,
    )
    actions = storage.add_subparsers(dest="action", metavar="ACTION", required=True)
    info = actions.add_parser("info", help="show the log directories of this node", allow_abbrev=False)
    formatting = actions.add_parser("format", help="format the log directories of this node", allow_abbrev=False)
    actions.add_parser("random-uuid", help="print a random cluster or directory id", allow_abbrev=False)
    for parser in (info, formatting):
        parser.add_argument("-c", "--config", required=True, metavar="FILE", help="the node's properties file")
    _add_format_options(formatting)


def _add_format_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", "--cluster-id", required=True, metavar="ID", help="the id of the cluster")
    parser.add_argument(
        "-S",
        "--add-scram",
        action="append",
        default=[],
        metavar="CREDENTIAL",
        help="a SCRAM credential the cluster starts with: 'SCRAM-SHA-256=[name=alice,password=alice-secret]' or "
        '\'SCRAM-SHA-512=[name=alice,iterations=8192,salt="N3E=",saltedpassword="YCE="]\'',
    )
    parser.add_argument(
        "-g", "--ignore-formatted", action="store_true", help="leave directories alone that are formatted already"
    )
    parser.add_argument("-r", "--release-version", metavar="RELEASE", help="the release whose features to start with")
    parser.add_argument(
        "-f",
        "--feature",
        action="append",
        default=[],
        metavar="FEATURE=LEVEL",
        help="the level of one feature; may be given several times",
    )
    voters = parser.add_mutually_exclusive_group()
    voters.add_argument("-s", "--standalone", action="store_true", help="this controller alone is the first quorum")
    voters.add_argument(
        "-N", "--no-initial-controllers", action="store_true", help="a controller that joins a quorum later"
    )
    voters.add_argument(
        "-I",
        "--initial-controllers",
        metavar="ID@HOST:PORT:DIRECTORY,...",
        help="the first quorum, the same for all nodes: 1@host1:9093:_toUUGXjRGuK3jQ5HWnFtw,2@host2:9093:...",
    )


def storage(options: argparse.Namespace) -> int:
    from cli import storage_commands

    return storage_commands.run(options)
