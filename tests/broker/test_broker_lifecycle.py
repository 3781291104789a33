"""A broker's life with the controller, on a controller in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.metadata import register_broker, started
from support.quorum_in_process import until

from broker.controller_channel import ControllerChannel
from broker.lifecycle import BrokerLifecycle
from broker.network.client import NodeClients
from controller.endpoints import broker_endpoints


async def test_one_whose_place_another_has_taken_goes_on_asking(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As Apache Kafka's does: it neither ends nor registers anew, which would throw the other one out. With its old
    epoch it changes nothing."""
    controller = await started(tmp_path, register=False, broker_heartbeat_interval_ms="50")
    channel = ControllerChannel(controller, NodeClients("test"))
    config = controller.effective_config
    lifecycle = BrokerLifecycle(config, controller, channel, offline_directories=list, cordoned_directories=list)
    await lifecycle.register(broker_endpoints(config), list(controller.node.directory_ids.values()), -1)
    await lifecycle.unfence()
    controller.heartbeats.end_session(config.node_id, lifecycle.epoch)  # cut off for long, say
    epoch = await register_broker(controller)

    def refusals() -> int:
        return sum("refused a heartbeat: STALE_BROKER_EPOCH" in record.message for record in caplog.records)

    await until(lambda: refusals() >= 3)
    assert controller.image.brokers[config.node_id].epoch == epoch > lifecycle.epoch
    await lifecycle.stop()
    await controller.shutdown()
