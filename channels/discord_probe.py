"""One look at the account, for `fawn check`."""

from __future__ import annotations

from channels.base import Refused
from channels.discord import Settings


async def look(settings: Settings) -> str:
    """A sentence about the account. Raises Refused with what to do."""
    raise Refused("not there yet")
