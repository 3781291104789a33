"""What clients saw during a fault test, as a file of JSON lines, which `history_check` checks."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class History:
    """One line per event, with the time since the beginning. Lines are flushed: a killed test leaves its history."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        """Events so far. What a client asks for can only depend on what it, or others, were told before."""
        self._file = open(path, "w", buffering=1)  # noqa: SIM115 - closed by close()
        self._lock = threading.Lock()
        self._begin = time.monotonic()

    def add(self, op: str, **fields: Any) -> None:
        with self._lock:
            at = round((time.monotonic() - self._begin) * 1000)
            self._file.write(json.dumps({"ms": at, "op": op, **fields}, separators=(",", ":")) + "\n")
            self.count += 1

    def close(self) -> None:
        with self._lock:
            self._file.close()


def read_history(path: Path) -> Iterator[dict[str, Any]]:
    with open(path) as lines:
        for line in lines:
            yield json.loads(line)
