"""`python -m bench [--quick]`: run the cases side by side, print the table, write the results."""

from __future__ import annotations

import argparse
import fnmatch
import resource
import shutil
import signal
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))  # the server processes live in tests/support

from support.jars import KAFKA_VERSION
from support.java import find_java

from bench import machine, report, table
from bench.cases import CASES
from bench.lab import Lab
from bench.runner import Runner

ROUNDS = 3
BUDGET_S = {True: 270, False: 3600}  # by `quick`: its promise is five minutes, clean-up included
FREE_DISK_GB = {True: 8, False: 25}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer cases and less data, under five minutes")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="measured rounds per side (default: %(default)s)")
    parser.add_argument("--case", action="append", default=[], help="only cases whose name matches, * allowed")
    parser.add_argument("--list", action="store_true", help="name the cases and end")
    parser.add_argument("--results", type=Path, help="write the results here instead of bench/results")
    options = parser.parse_args()
    patterns = options.case or ["*"]
    cases = [case for case in CASES if any(fnmatch.fnmatch(case.name, pattern) for pattern in patterns)]
    if options.quick and not options.case:
        cases = [case for case in cases if case.quick]
    if options.list:
        for case in cases:
            print(case.name)
        return
    if not cases:
        sys.exit(f"no case matches {' '.join(patterns)}")
    signal.signal(signal.SIGTERM, _on_terminate)

    _allow_many_files()
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as name:
        directory = Path(name)
        free_gb = shutil.disk_usage(directory).free / 2**30
        if free_gb < FREE_DISK_GB[options.quick]:
            sys.exit(f"{free_gb:.0f} GB free in {directory.parent}; {FREE_DISK_GB[options.quick]} GB are needed")
        about = machine.describe(find_java(), KAFKA_VERSION, directory)
        print(", ".join(f"{key}: {value}" for key, value in about.items()), flush=True)
        lab = Lab(directory, quick=options.quick, say=lambda text: print(text, flush=True))
        try:
            lab.touch_memory()
            lab.start_sides()
            rows = Runner(lab, rounds=options.rounds, budget_s=BUDGET_S[options.quick]).run(cases)
        finally:
            lab.close()
    when = datetime.now(UTC)
    print()
    print(table.render(rows))
    if options.case and options.results is None:
        return  # a part of the cases must not replace a whole run
    where = options.results or report.RESULTS
    written = report.write(rows, about, quick=options.quick, rounds=options.rounds, when=when, directory=where)
    print("written: " + ", ".join(str(path) for path in written))


def _allow_many_files() -> None:
    """Four thousand partitions are some twelve thousand open files; the brokers inherit the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _on_terminate(signum: int, frame: FrameType | None) -> NoReturn:
    """Servers and directories are removed on the way out."""
    sys.exit(f"ended by signal {signum}")


if __name__ == "__main__":
    main()
