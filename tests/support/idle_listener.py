"""An inbox listener that does nothing, for tests of inbox and leases."""

from __future__ import annotations

from bot.inbox import Arrived


class IdleListener:
    """`bot.inbox.Next`."""

    def woken(self, arrived: Arrived) -> None:
        pass
