"""How large the volume of a log directory is, and how much of it this process may still use."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

UNKNOWN: Final = -1


class VolumeSpace(NamedTuple):
    total_bytes: int
    usable_bytes: int


def volume_space(path: str) -> VolumeSpace:
    """UNKNOWN where the system does not say: a directory that has just failed must not fail the report."""
    try:
        stats = os.statvfs(path)
    except OSError:
        return VolumeSpace(UNKNOWN, UNKNOWN)
    return VolumeSpace(stats.f_blocks * stats.f_frsize, stats.f_bavail * stats.f_frsize)
