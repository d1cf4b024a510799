"""Nobody goes on with what arrived: for tests of the inbox and the leases alone."""

from __future__ import annotations

from bot.inbox import Arrived
from bot.store import Execute


class Idle:
    """`bot.inbox.Next`."""

    def claim(self, execute: Execute, arrived: Arrived) -> None:
        pass

    def woken(self, arrived: Arrived) -> None:
        pass

    def undone(self, arrived: Arrived) -> None:
        pass
