"""Keep data_dir readable for the service only."""

from __future__ import annotations

import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)


def close_to_others(data_dir: Path) -> None:
    """Close `data_dir` to other users where an earlier version left it open. Raises OSError."""
    if open_to_others(data_dir) and data_dir.stat().st_uid == os.geteuid():
        data_dir.chmod(0o700)
        log.warning("data_dir.closed — other users of this machine could look into it")


def open_to_others(data_dir: Path) -> bool:
    """Whether other users of this machine may look into it."""
    return bool(data_dir.stat().st_mode & 0o077)
