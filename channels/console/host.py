"""Define what the console asks the service that it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agent.blocks import Final
from agent.messages import Thread
from catalogue import _
from channels.console.view import Progress


class ConsoleHost(Protocol):
    """The service around the console."""

    def describe_channels(self) -> Sequence[tuple[str, bool]]:
        """Return a sentence for each other channel, and whether it is connected."""

    def describe_leaving(self) -> str:
        """Return what a second Ctrl-C does on the console whose end stops the service."""

    def progress(self, thread: Thread) -> Progress | None:
        """Return how far the turn at this address is; None if none runs."""

    async def open_question(self, thread: Thread) -> Final | None:
        """Return the questions for which the conversation of this address waits, as they were asked."""

    async def wait_until_idle(self, thread: Thread) -> None:
        """Wait until everything that arrived at this address is answered and delivered."""


class NoHost:
    """A `ConsoleHost` without a service: nothing else runs."""

    def describe_channels(self) -> Sequence[tuple[str, bool]]:
        return ()

    def describe_leaving(self) -> str:
        return _("Press Ctrl-C again to leave.")

    def progress(self, thread: Thread) -> Progress | None:
        return None

    async def open_question(self, thread: Thread) -> Final | None:
        return None

    async def wait_until_idle(self, thread: Thread) -> None:
        return


NO_HOST = NoHost()
