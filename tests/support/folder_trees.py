"""Folder trees that a hostile tenant can create."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def create_deep_tree(folder: Path, levels: int, name: str = "d") -> None:
    """Create nested folders below `folder`, deeper than any path, with a file at the bottom."""
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("bottom", os.O_WRONLY | os.O_CREAT, dir_fd=here))
    os.close(here)


@contextmanager
def remove_afterwards(folder: Path) -> Iterator[Path]:
    """Remove `folder` afterwards: pytest's cleanup cannot go that deep."""
    try:
        yield folder
    finally:
        subprocess.run(["rm", "-rf", "--", folder], check=True)
