"""The steps of `fawn setup telegram`."""

from __future__ import annotations

import re
from functools import partial

from catalogue import N_, _
from channels.shared.setup_guide import SetupGuide
from channels.telegram import TelegramSettings

CREATE_BOT = N_("""\
Create the bot: open https://t.me/BotFather, send /newbot, and choose a name and a username that ends in "bot".
BotFather replies with the token (digits, a colon, letters).""")
CONTACT = N_("Open https://t.me/{bot}?start={word} and press Start.")


def _describe_contact(settings: TelegramSettings, account: str, word: str) -> str:
    """Return the link that opens the bot's chat and sends it the word."""
    found = re.search(r"@(\w+)", account)
    return _(CONTACT, bot=found[1] if found else "", word=word)


GUIDE = SetupGuide(_describe_contact, {"token": partial(_, CREATE_BOT)})
