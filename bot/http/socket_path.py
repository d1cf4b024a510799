"""Name the socket of the service in data_dir, however long the path of data_dir is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOCKET_NAME = "control.sock"


@contextmanager
def reachable(data_dir: Path) -> Iterator[str]:
    """Yield a path to the socket that fits into a socket address (108 bytes, unix(7)). Raises OSError."""
    folder = os.open(data_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{SOCKET_NAME}"
    finally:
        os.close(folder)
