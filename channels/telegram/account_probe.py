"""Probe the account for `fawn check`."""

from __future__ import annotations

from telegram.error import InvalidToken, TelegramError

from channels.base import Refused
from channels.shared.lifecycle import open_channel
from channels.telegram import TelegramSettings
from channels.telegram.channel import TelegramChannel
from channels.telegram.transport import NoAnswer, NotSent


async def probe_account(settings: TelegramSettings) -> str:
    """A sentence about the account. Raises Refused with what to do."""
    try:
        async with open_channel(lambda: TelegramChannel, settings) as channel:
            name = (await channel.identify())["username"]
    except InvalidToken:
        raise Refused("Telegram rejects the bot's token: take the right one from @BotFather (`token`)") from None
    except (NotSent, NoAnswer) as error:
        through = "the `proxy`" if settings.proxy else "`base_url`"
        raise Refused(f"Telegram cannot be reached: {error.message}; check {through} and the network") from None
    except TelegramError as error:
        raise Refused(f"Telegram did not take the call: {error.message}") from None
    return f"connected as @{name}"
