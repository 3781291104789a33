"""`barnabas` on a disk whose syncs fail: `python -m support.failing_sync <mark> <directory> server-start ...`

As long as the file `mark` exists, every fdatasync and fsync below `directory` fails as a dying disk's does. Nothing
else differs from `cli.main`.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable

from cli.main import main


def failing(sync: Callable[[int], None], mark: str, directory: str) -> Callable[[int], None]:
    def sync_or_fail(fd: int) -> None:
        if os.path.exists(mark) and os.readlink(f"/proc/self/fd/{fd}").startswith(directory):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(fd)

    return sync_or_fail


if __name__ == "__main__":
    mark, directory, *arguments = sys.argv[1:]
    os.fdatasync = failing(os.fdatasync, mark, directory)
    os.fsync = failing(os.fsync, mark, directory)
    sys.exit(main(arguments))
