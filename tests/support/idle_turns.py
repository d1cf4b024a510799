"""What the inbox has where no scheduler serves: messages wait, and nothing follows their commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from agent.messages import Message
from bot.database.database import Execute
from bot.rights.claimed_run import ClaimedRun


class IdleTurns:
    """See `bot.journey.inbox.Turns`."""

    @contextmanager
    def reserve_places(self, wanted: int) -> Iterator[int]:
        """No place is free."""
        yield 0

    def claim_at_once(self, execute: Execute, conversation: str, now: float) -> ClaimedRun | None:
        """See `bot.journey.inbox.Turns`."""
        raise AssertionError("no place was reserved")

    def arrived(self, accepted: Sequence[tuple[str, Message]], claimed: Sequence[ClaimedRun]) -> None:
        """See `bot.journey.inbox.Turns`."""

    def stop_run(self, run: int, by: str) -> None:
        """See `bot.journey.inbox.Turns`."""


IDLE_TURNS = IdleTurns()
