"""A minute of faults on three real nodes: nothing acknowledged is lost, nothing read vanishes, replicas are equal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.fault_run import run
from support.history_check import check

SECONDS = float(os.environ.get("BARNABAS_FAULT_SECONDS", "60"))
SEED = int(os.environ.get("BARNABAS_FAULT_SEED", "8"))


@pytest.mark.slow
def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    verdict = check(run(tmp_path, SECONDS, SEED))
    print(f"\nseed {SEED}, {SECONDS:.0f} s of faults\n{verdict.report()}")
    assert verdict.is_good, verdict.report()
    assert verdict.counts["acknowledged"] > 500
    assert verdict.counts["commits"] > 50
    assert sum(verdict.faults.values()) >= 5
