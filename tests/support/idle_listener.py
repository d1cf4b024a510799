"""What follows a commit of the inbox where no scheduler serves: nothing."""

from __future__ import annotations

from bot.journey.inbox import Accepted


def ignore_arrivals(_accepted: Accepted) -> None:
    """See `bot.journey.inbox.Inbox`."""
