"""Nobody goes on with what arrived: for tests of the inbox and the leases alone."""

from __future__ import annotations

from bot.inbox import Arrived


class Idle:
    """`bot.inbox.Next`."""

    def woken(self, arrived: Arrived) -> None:
        pass
