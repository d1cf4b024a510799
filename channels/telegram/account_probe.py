"""Probe the account for `fawn check`."""

from __future__ import annotations

from catalogue import N_, _
from channels.shared.account_probe import CONNECTED, refusing
from channels.shared.lifecycle import opened
from channels.telegram import TelegramSettings
from channels.telegram.api import TelegramApi

TOKEN_REJECTED = N_("Telegram rejects the bot's token: copy it again from @BotFather (`token`)")


async def probe(settings: TelegramSettings) -> str:
    with refusing(settings.base_url, ["base_url", "proxy", "ca_file"], TOKEN_REJECTED):
        async with opened(TelegramApi(settings)) as api:
            return _(CONNECTED, name=f"@{(await api('getMe'))['username']}")
