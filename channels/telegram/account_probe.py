"""Probe the account for `fawn check`."""

from __future__ import annotations

from catalogue import _
from channels.base import ChannelError, Refused, TokenRejected
from channels.shared.account_probe import CONNECTED
from channels.shared.lifecycle import opened
from channels.telegram import TelegramSettings
from channels.telegram.api import TelegramApi


async def probe(settings: TelegramSettings) -> str:
    try:
        async with opened(TelegramApi(settings)) as api:
            username = (await api("getMe"))["username"]
    except TokenRejected:
        raise Refused(_("Telegram rejects the bot's token: copy it again from @BotFather (`token`)")) from None
    except Refused:
        raise
    except ChannelError as error:
        suspect = "`proxy`" if settings.proxy else "`base_url`"
        raise Refused(_("{error}: check {suspect} and the network", error=error, suspect=suspect)) from None
    return _(CONNECTED, name=f"@{username}")
