"""What a reader of the figures must know about the machine, and what the kernel knows about a process."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads of `pid`, ended ones included.

    Granularity is a clock tick (10 ms as a rule), so a measurement should last a second or more.
    """
    return parse_cpu_seconds(Path(f"/proc/{pid}/stat").read_text())


def parse_cpu_seconds(stat: str) -> float:
    """utime and stime are fields 14 and 15; the name in field 2 may hold spaces and brackets."""
    fields = stat[stat.rindex(")") + 2 :].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def resident_mb(pid: int) -> float:
    return parse_resident_mb(Path(f"/proc/{pid}/status").read_text())


def parse_resident_mb(status: str) -> float:
    found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
    if found is None:
        raise ValueError("no VmRSS line: the process has ended")
    return int(found[1]) / 1024


def parse_cpu_model(cpuinfo: str) -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def java_version(java: str) -> str:
    run = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    return (run.stderr + run.stdout).splitlines()[0]


def describe(java: str, kafka_version: str, directory: Path) -> dict[str, Any]:
    """Everything that changes the figures. No host name and no path: the file is committed."""
    usage = shutil.disk_usage(directory)
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": parse_cpu_model(Path("/proc/cpuinfo").read_text()),
        "memory_gb": round(_memory_gb(), 1),
        "disk_free_gb": round(usage.free / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": java_version(java),
        "kafka": kafka_version,
        "load_average_at_start": [round(load, 2) for load in os.getloadavg()],
    }
