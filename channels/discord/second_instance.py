"""Detect a second program on this bot's token: Discord gives every event to both, and both would answer.

Two signs are certain: an interaction that just came is answered already, and the thread on a mention that just came was
opened by this bot's account, but not by this process. From then on this process takes no events until it is restarted.
"""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)

DETECTED = "Another program answers on this bot's token. Stop it (or this one), then restart Fawn."


class SecondInstance:
    """Whether a second program was detected on this token."""

    def __init__(self) -> None:
        self.detected = False

    def report(self, sign: str) -> None:
        """Refuse to serve beside it; `sign` says how it was detected, for the log."""
        if not self.detected:
            log.error("discord.second_instance sign=%s", sign)
        self.detected = True
