"""The actions of `barnabas storage`. They work on files of a node that does not run, so they import the controller's
formatter instead of talking to a broker."""

from __future__ import annotations

import argparse
import sys

from config.broker import BrokerConfig
from config.errors import ConfigError
from controller.formatter import FormatOptions, format_storage, random_id, storage_info
from controller.storage_format import FormatError


def run(options: argparse.Namespace) -> int:
    if options.action == "random-uuid":
        print(random_id())
        return 0
    try:
        config = BrokerConfig.load(options.config)
        if options.action == "info":
            return 0 if storage_info(config, print) else 1
        format_storage(config, _format_options(options), print)
        return 0
    except (ConfigError, FormatError) as error:
        print(error, file=sys.stderr)
    except OSError as error:
        print(f"The log directories could not be formatted: {error}", file=sys.stderr)
    return 1


def _format_options(options: argparse.Namespace) -> FormatOptions:
    return FormatOptions(
        cluster_id=options.cluster_id,
        ignore_formatted=options.ignore_formatted,
        release_version=options.release_version,
        features=options.feature,
        scram=options.add_scram,
        standalone=options.standalone,
        no_initial_controllers=options.no_initial_controllers,
        initial_controllers=options.initial_controllers,
    )
