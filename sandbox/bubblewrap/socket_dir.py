"""Short folders below /tmp for unix sockets, whose paths end at 107 bytes."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from sandbox.disk.folders import remove_tree


def make_socket_dir() -> Path:
    """Make a private folder, and remove those of processes that have ended."""
    for left in Path(tempfile.gettempdir()).glob("fawn-*-*"):
        named = re.fullmatch(r"fawn-(\d+)-\w+", left.name)
        if named and not Path(f"/proc/{named[1]}").exists() and _is_ours(left):
            remove_tree(left)
    return Path(tempfile.mkdtemp(prefix=f"fawn-{os.getpid()}-"))


def _is_ours(folder: Path) -> bool:
    """Check the owner: any user may make a folder below /tmp with such a name."""
    try:
        return folder.lstat().st_uid == os.geteuid()
    except FileNotFoundError:  # another process removed it
        return False
