"""Keep data_dir readable for the service only, and name its folders."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
import socket
from pathlib import Path

log = logging.getLogger(__name__)

MAX_MACHINE_CHARS = 40
LOG_FOLDER = ".tasks"  # in a workspace: what background commands printed


def close_to_others(data_dir: Path) -> None:
    """Close `data_dir` to other users where an earlier version left it open. Raises OSError."""
    if open_to_others(data_dir) and data_dir.stat().st_uid == os.geteuid():
        data_dir.chmod(0o700)
        log.warning("data_dir.closed — other users of this machine could look into it")


def open_to_others(data_dir: Path) -> bool:
    """Whether other users of this machine may look into it."""
    return bool(data_dir.stat().st_mode & 0o077)


def host_name(data_dir: Path) -> str:
    """Return what names this data_dir among those of the processes that share a database.

    A new name begins with that of the machine, and stays where the data_dir moves.
    """
    path = data_dir / "host"
    try:
        return path.read_text("ascii").strip()
    except FileNotFoundError:
        machine = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:MAX_MACHINE_CHARS]
        path.write_text(name := f"{machine or 'host'}-{secrets.token_hex(4)}", "ascii")
        return name


def conversation_folder(data_dir: Path, conversation: str) -> Path:
    """Return the folder of a conversation. Its name reveals nothing and needs no escaping."""
    return data_dir / "threads" / hashlib.sha256(conversation.encode()).hexdigest()[:24]
