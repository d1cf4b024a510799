"""Set up Telegram: the steps of `fawn setup`, and the probe of `fawn check`."""

from __future__ import annotations

import re
from functools import partial

from catalogue import N_, _
from channels.shared.lifecycle import CONNECTED, SetupGuide, opened, refusing
from channels.telegram import TelegramSettings
from channels.telegram.api import TelegramApi

CREATE_BOT = N_("""\
Create the bot: open https://t.me/BotFather, send /newbot, and choose a name and a username that ends in "bot".
BotFather replies with the token (digits, a colon, letters).""")
CONTACT = N_("Open https://t.me/{bot}?start={word} and press Start.")


def _describe_contact(settings: TelegramSettings, account: str, word: str) -> str:
    """Return the link that opens the bot's chat and sends it the word."""
    found = re.search(r"@(\w+)", account)
    return _(CONTACT, bot=found[1] if found else "", word=word)


GUIDE = SetupGuide(_describe_contact, {"token": partial(_, CREATE_BOT)})


TOKEN_REJECTED = N_("Telegram rejects the bot's token: copy it again from @BotFather (`token`)")


async def probe(settings: TelegramSettings) -> str:
    with refusing(settings.base_url, ["base_url", "proxy", "ca_file"], TOKEN_REJECTED):
        async with opened(TelegramApi(settings)) as api:
            return _(CONNECTED, name=f"@{(await api('getMe'))['username']}")
