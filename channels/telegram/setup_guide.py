"""The steps of `fawn setup telegram`."""

from __future__ import annotations

import re

from channels.shared.setup_guide import SetupGuide
from channels.telegram import TelegramSettings

CREATE_BOT = """\
Create the bot: open https://t.me/BotFather, send /newbot, and choose a name and a username that ends in "bot".
BotFather replies with the token (digits, a colon, letters)."""
CONTACT = "Open https://t.me/{bot}?start={word} and press Start."


def _describe_contact(settings: TelegramSettings, account: str, word: str) -> str:
    """Return the link that opens the bot's chat and sends it the word."""
    found = re.search(r"@(\w+)", account)
    return CONTACT.format(bot=found[1] if found else "", word=word)


GUIDE = SetupGuide(_describe_contact, {"token": CREATE_BOT})
