"""The users of the host that stand behind sandboxes when the service is root: one for each sandbox that runs.

The kernel bounds many things per user (inotify instances, queues, keys), so two sandboxes of one user could take them
from each other. A conversation keeps its user, who owns its folders; only where a running sandbox has that one it gets
another, and its folders with it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from sandbox.base import FOLDERS

# systemd.io/UIDS-GIDS calls these unused; nobody's account and no service has them, and every container's range does.
FIRST, COUNT = 60_578, 606


class SandboxUsers:
    """Who has which. `shift` is what the host adds to a user of the sandbox (an engine with userns-remap)."""

    def __init__(self, shift: int = 0) -> None:
        self._shift = shift
        self._taken: dict[str, int] = {}

    def assign_user(self, key: str, folder: Path) -> int:
        """The user of the sandbox of `key`, until `release_user`; one of more than 606 at once shares."""
        try:
            first = (folder / FOLDERS[0]).stat().st_uid - self._shift - FIRST
        except FileNotFoundError:
            first = -1
        if not 0 <= first < COUNT:
            first = int(hashlib.sha256(key.encode()).hexdigest(), 16) % COUNT
        others = {user for other, user in self._taken.items() if other != key}
        numbers = [FIRST + (first + step) % COUNT for step in range(COUNT)]
        self._taken[key] = next((number for number in numbers if number not in others), numbers[0])
        return self._taken[key]

    def release_user(self, key: str) -> None:
        """The sandbox of `key` has stopped."""
        self._taken.pop(key, None)
