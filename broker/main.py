"""The process around a broker: configuration, logging, the event loop, signals, the banner, the exit code."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Sequence
from typing import Any

import uvloop

from broker.server import Broker, StartError
from config.broker import BrokerConfig
from config.errors import ConfigError

log = logging.getLogger("broker.main")


def run(properties: str, overrides: Sequence[str], version: str) -> int:
    """Runs until a signal. 0 after a graceful stop; 1, and one line on stderr, when the node cannot start or go on."""
    try:
        config = BrokerConfig.load(properties, overrides)
    except ConfigError as error:
        print(f"barnabas: {error}", file=sys.stderr)
        return 1
    _configure_logging()
    for warning in config.warnings:
        log.warning("%s", warning)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config, version))


async def _serve(config: BrokerConfig, version: str) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, stop, number)
    broker = Broker(config, give_up=stop.set)
    stopping: asyncio.Future[Any] = asyncio.ensure_future(stop.wait())
    starting: asyncio.Future[Any] = asyncio.ensure_future(broker.start())
    try:
        # A node of a cluster may wait long for the others; a signal ends that.
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
        await starting
    except asyncio.CancelledError:
        await broker.stop()
        return 0
    except (ConfigError, StartError) as error:
        print(f"barnabas: {error}", file=sys.stderr)
        stopping.cancel()
        await broker.stop()
        return 1
    print(banner(broker, version), flush=True)
    _spare_the_collector()
    await asyncio.wait({stopping, broker.controller.fault}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    failed = broker.has_given_up or broker.controller.fault.done()
    await broker.stop()
    log.info("stopped")
    return 1 if failed else 0


def _spare_the_collector() -> None:
    """What is there now stays, so the garbage collector need not look at it again; and requests leave no cycles behind,
    so it may come a tenth as often as by default (700)."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(7_000, 20, 50)


def _on_signal(stop: asyncio.Event, number: signal.Signals) -> None:
    if not stop.is_set():
        log.info("%s: stopping", number.name)
    stop.set()


def banner(broker: Broker, version: str) -> str:
    """What a person who just started a node wants to know."""
    listeners = ", ".join(map(str, broker.bound_listeners))
    lines = [
        f"Barnabas {version}, node {broker.node_id} of cluster {broker.cluster_id}",
        f"  roles            {', '.join(broker.config.process_roles)}",
        f"  listeners        {listeners}",
        f"  log directories  {', '.join(broker.log_directories)}",
    ]
    if broker.is_broker:
        lines.append(f"  ready: point clients at bootstrap server {broker.client_address()}")
    else:
        lines.append(f"  ready: point tools at bootstrap controller {broker.client_address()}")
    return "\n".join(lines)


def _configure_logging() -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="[%(asctime)s] %(levelname)s %(message)s (%(name)s)",
    )
