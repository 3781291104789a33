"""What clients saw during a fault test, as a file of JSON lines, which `history_check` checks."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any


class History:
    """One line per event, with the time since the beginning. Lines are flushed: a killed test leaves its history."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open(path, "w", buffering=1)  # noqa: SIM115 - closed by close()
        self._lock = threading.Lock()
        self._begin = time.monotonic()

    def add(self, op: str, **fields: Any) -> None:
        with self._lock:
            at = round((time.monotonic() - self._begin) * 1000)
            self._file.write(json.dumps({"ms": at, "op": op, **fields}, separators=(",", ":")) + "\n")

    def close(self) -> None:
        with self._lock:
            self._file.close()


def read_history(path: Path) -> list[dict[str, Any]]:
    with open(path) as lines:
        return [json.loads(line) for line in lines]
