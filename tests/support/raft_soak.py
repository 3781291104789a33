"""Many seeds of the simulated quorum, in as many processes as there are cores:
``python -m support.raft_soak [N] [first seed]``.

Prints how many ran and how long it took; the first seed that fails ends it, with how to run that one alone.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
import traceback
from multiprocessing import Pool

from support.raft_runs import Run

DEFAULT_SEEDS = 100_000
LOWEST_SEED = 1_000_000
"""Other seeds than those of ``make test``."""
CHUNK = 200


def run_chunk(first: int) -> tuple[int, int, int, str]:
    """Seeds run, events, elections, and how a seed failed if one did."""
    events = elections = 0
    for seed in range(first, first + CHUNK):
        try:
            world = Run(seed).run()
        except Exception:
            return seed - first, events, elections, f"seed {seed} fails:\n{traceback.format_exc()}"
        events += world.events
        elections += len(world.checks.leaders)
    return CHUNK, events, elections, ""


def main() -> int:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_SEEDS
    first_seed = int(sys.argv[2]) if len(sys.argv) > 2 else LOWEST_SEED + secrets.randbelow(10**12)
    print(f"{wanted} seeds from {first_seed} on", flush=True)
    started = time.monotonic()
    seeds = events = elections = 0
    with Pool(os.cpu_count()) as pool:
        for count, more_events, more_elections, failure in pool.imap_unordered(
            run_chunk, range(first_seed, first_seed + wanted, CHUNK)
        ):
            seeds, events, elections = seeds + count, events + more_events, elections + more_elections
            if failure:
                print(f"{failure}\nalone: BARNABAS_SIM_SEED=<seed> pytest tests/sim/test_sim_raft.py")
                return 1
            if seeds % 5_000 < CHUNK:
                print(f"{seeds} seeds, {events} events, {time.monotonic() - started:.0f} s", flush=True)
    print(
        f"{seeds} seeds, {events} events, {elections} elections: nothing broken in {time.monotonic() - started:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
