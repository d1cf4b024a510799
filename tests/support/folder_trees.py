"""Folders as a hostile tenant makes them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def dig(folder: Path, levels: int, name: str = "d") -> None:
    """Folders inside each other below `folder`, more than any path can name, with a file at the bottom."""
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("bottom", os.O_WRONLY | os.O_CREAT, dir_fd=here))
    os.close(here)


@contextmanager
def removed(folder: Path) -> Iterator[Path]:
    """Take `folder` away afterwards: what pytest tidies up with cannot go so deep."""
    try:
        yield folder
    finally:
        subprocess.run(["rm", "-rf", "--", folder], check=True)
