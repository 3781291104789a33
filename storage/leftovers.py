"""Files that an interrupted deletion, compaction or roll leaves in a partition's directory.

`.deleted` was to be removed anyway. `.cleaned` is the unfinished output of a compaction, its input is still
complete. `.swap` is finished output that was about to take its input's place: that is completed here, except for
output at or above an unfinished `.cleaned` file, which belongs to a segment that was being split.
"""

from __future__ import annotations

import logging
import os
import re

from config.topic import LogConfig
from storage.disk import Disk
from storage.segment import DELETED_SUFFIX, LOG_SUFFIX, Segment, file_name

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

_SEGMENT_FILE = re.compile(r"(\d{20})\.(?:log|index|timeindex|txnindex|snapshot)")
_log = logging.getLogger(__name__)


def _offset_of(name: str) -> int | None:
    match = _SEGMENT_FILE.match(name)
    return int(match[1]) if match else None


def clean_up_directory(directory: str, config: LogConfig, disk: Disk, now_ms: int) -> dict[str, int]:
    """Finish or undo what was interrupted. Returns the sizes of the segment files that remain, by name."""
    with os.scandir(directory) as entries:
        sizes = {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
    least_cleaned: int | None = None
    for name in list(sizes):
        if name.endswith(CLEANED_SUFFIX):
            offset = _offset_of(name)
            if offset is not None and (least_cleaned is None or offset < least_cleaned):
                least_cleaned = offset
        if name.endswith((CLEANED_SUFFIX, DELETED_SUFFIX)):
            _log.info("Removing %s, left over in %s", name, directory)
            disk.unlink(os.path.join(directory, name))
            del sizes[name]
    swaps = {name: _offset_of(name) for name in sizes if name.endswith(SWAP_SUFFIX)}
    for name, offset in list(swaps.items()):
        if offset is None or (least_cleaned is not None and offset >= least_cleaned):
            disk.unlink(os.path.join(directory, name))
            del sizes[name], swaps[name]
    if swaps:
        _complete_swap(directory, list(swaps), sizes, config, disk, now_ms)
    for name in list(sizes):
        offset = _offset_of(name)
        if offset is None or not _SEGMENT_FILE.fullmatch(name):
            del sizes[name]
        elif not name.endswith(".snapshot") and file_name(offset, LOG_SUFFIX) not in sizes:
            _log.warning("Removing %s in %s: its segment is gone", name, directory)
            disk.unlink(os.path.join(directory, name))
            del sizes[name]
    return sizes


def _complete_swap(
    directory: str, swaps: list[str], sizes: dict[str, int], config: LogConfig, disk: Disk, now_ms: int
) -> None:
    """Remove the segments that the finished output replaces, then give it its real name."""
    ranges: list[tuple[int, int]] = []
    for name in swaps:
        offset = _offset_of(name)
        if offset is None or not name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            continue
        output = Segment(directory, offset, config, now_ms=now_ms, size=sizes[name], disk=disk)
        output.file.path += SWAP_SUFFIX
        next_offset = offset
        for _, header in output.headers():
            next_offset = header.next_offset
        output.file.close()
        ranges.append((offset, next_offset))
    if not ranges:
        return
    least, most = min(start for start, _ in ranges), max(end for _, end in ranges)
    for name in os.listdir(directory):
        found = _offset_of(name)
        if found is not None and not name.endswith((SWAP_SUFFIX, ".snapshot")) and least <= found < most:
            disk.unlink(os.path.join(directory, name))
            sizes.pop(name, None)
    for name in swaps:
        final = name.removesuffix(SWAP_SUFFIX)
        disk.rename(os.path.join(directory, name), os.path.join(directory, final))
        sizes[final] = sizes.pop(name)
