"""What follows a commit of the inbox where no scheduler serves: nothing."""

from __future__ import annotations

from bot.inbox import Accepted


def ignore_arrivals(_accepted: Accepted) -> None:
    """See `bot.inbox.Inbox`."""
