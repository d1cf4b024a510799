"""Host users of sandboxes when the service is root: one for each that runs.

The kernel limits many resources per user (inotify instances, queues, keys), so two sandboxes with the same user could
exhaust them for each other. A conversation keeps its user, who owns its folders. If a running sandbox has that user,
the conversation and its folders get another one.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from sandbox.base import FOLDERS
from sandbox.inside.environment import HOME

# Unused according to systemd.io/UIDS-GIDS, and in every container's range.
FIRST_USER_ID, USER_COUNT = 60_578, 606


def account_files(user: int, group: int) -> dict[str, str]:
    """Return passwd and group, which give the user of commands a name and a home."""
    return {
        "passwd": f"agent:x:{user}:{group}:agent:{HOME}:/bin/bash\nnobody:x:65534:65534:nobody:/:/bin/false\n",
        "group": f"agent:x:{group}:\nnogroup:x:65534:\n",
    }


class SandboxUsers:
    """Assigns users to sandboxes. The host adds `shift` to a user of the sandbox (userns-remap)."""

    def __init__(self, shift: int = 0) -> None:
        self._shift = shift
        self._taken: dict[str, int] = {}

    def assign_user(self, key: str, folder: Path) -> int:
        """Return the user of the sandbox of `key` until `release_user`. Above 606 sandboxes, users are shared."""
        try:
            first = (folder / FOLDERS[0]).stat().st_uid - self._shift - FIRST_USER_ID
        except FileNotFoundError:
            first = -1
        if not 0 <= first < USER_COUNT:
            first = int(hashlib.sha256(key.encode()).hexdigest(), 16) % USER_COUNT
        others = {user for other, user in self._taken.items() if other != key}
        numbers = [FIRST_USER_ID + (first + step) % USER_COUNT for step in range(USER_COUNT)]
        self._taken[key] = next((number for number in numbers if number not in others), numbers[0])
        return self._taken[key]

    def release_user(self, key: str) -> None:
        self._taken.pop(key, None)
