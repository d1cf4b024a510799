"""Define what the console asks the service that it belongs to."""

from __future__ import annotations

from collections.abc import Sequence

from agent.blocks import Final
from agent.messages import Thread
from catalogue import _
from channels.console.view import Progress


class ConsoleHost:
    """The service around the console. This one does not have a service: nothing else runs."""

    def describe_channels(self) -> Sequence[tuple[str, bool]]:
        """Return a sentence for each other channel, and whether it is connected."""
        return ()

    def describe_leaving(self) -> str:
        """Return what a second Ctrl-C does on the console whose end stops the service."""
        return _("Press Ctrl-C again to leave.")

    def progress(self, thread: Thread) -> Progress | None:
        """Return how far the turn at this address is; None if none runs."""
        return None

    async def open_question(self, thread: Thread) -> Final | None:
        """Return the questions for which the conversation of this address waits, as they were asked."""
        return None

    async def wait_until_idle(self, thread: Thread) -> None:
        """Wait until everything that arrived at this address is answered and delivered."""


NO_HOST = ConsoleHost()
