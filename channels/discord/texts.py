"""Error texts that `fawn check` and the readiness share."""

from __future__ import annotations

REJECTION = "Discord rejects the bot's token: copy the right one from discord.com/developers, page Bot."
INTENT_REFUSED = (
    "Discord refuses the Message Content Intent: switch it on at discord.com/developers, page Bot,"
    " Privileged Gateway Intents."
)
