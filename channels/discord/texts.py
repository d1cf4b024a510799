"""Error texts of the probe and the readiness."""

from __future__ import annotations

from catalogue import N_

TOKEN_REJECTED = N_("Discord rejects the bot's token: copy the right one from discord.com/developers, page Bot.")
INTENT_REFUSED = N_(
    "Discord refuses the Message Content Intent: switch it on at discord.com/developers, "
    "page Bot, Privileged Gateway Intents."
)
TOKEN_SHARED = N_("Another program is using this bot's token. Stop one of the two, then restart Fawn.")
