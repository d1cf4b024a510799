"""Folders with short names below /tmp, for unix sockets, whose paths end at 107 bytes. A process that is killed leaves
its own behind; the next one takes them away."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from sandbox.disk.removal import remove_tree


def make_socket_dir() -> Path:
    """A new folder, for its owner only. Those of processes that are gone are removed first."""
    for left in Path(tempfile.gettempdir()).glob("fawn-*-*"):
        named = re.fullmatch(r"fawn-(\d+)-\w+", left.name)
        if named and not Path(f"/proc/{named[1]}").exists() and _is_ours(left):
            remove_tree(left)
    return Path(tempfile.mkdtemp(prefix=f"fawn-{os.getpid()}-"))


def _is_ours(folder: Path) -> bool:
    """Anybody may make a folder below /tmp that is called like ours."""
    try:
        return folder.lstat().st_uid == os.geteuid()
    except FileNotFoundError:  # another process took it away
        return False
