"""Probe the account for `fawn check`."""

from __future__ import annotations

import aiohttp

from channels.base import ChannelError, Refused
from channels.discord import DiscordSettings
from channels.discord.api import DiscordApi
from channels.discord.texts import INTENT_REFUSED, REJECTION

# What docs/setup-discord.md asks for, as bits (…/docs/topics/permissions)
REQUIRED_PERMISSIONS = sum(1 << bit for bit in (10, 11, 14, 15, 16, 34, 35, 38))
CONTENT_INTENT_FLAGS = (
    1 << 18 | 1 << 19
)  # flags of an application that may read messages (…/docs/resources/application#flags)
GATEWAY_TIMEOUT_SECONDS = 10.0  # seconds for the gateway's greeting


async def probe_account(settings: DiscordSettings) -> str:
    """A sentence about the account. Raises Refused with what to do."""
    calls = DiscordApi(settings)
    await calls.open()
    try:
        me = await calls("GET", "/users/@me")
        application = await calls("GET", "/applications/@me")
        guilds = await calls("GET", "/users/@me/guilds")
        await _probe_gateway(settings, calls)
    except ChannelError as error:
        raise _probe_error(error, settings) from None
    finally:
        await calls.close()
    if not int(application.get("flags") or 0) & CONTENT_INTENT_FLAGS:
        raise Refused(INTENT_REFUSED)
    where = ", ".join(str(guild["name"]) for guild in guilds[:3]) + (", …" if len(guilds) > 3 else "")
    if not guilds:
        link = f"https://discord.com/oauth2/authorize?client_id={application['id']}&scope=bot+applications.commands"
        link = f"{link}&permissions={REQUIRED_PERMISSIONS}"
        return f"connected as @{me['username']}, in no server yet: invite it with {link}"
    return f"connected as @{me['username']} in {where}"


def _probe_error(error: ChannelError, settings: DiscordSettings) -> Refused:
    """What to do about a failed look."""
    words = str(error)
    if "token" in words:
        return Refused(REJECTION)
    proxy = "the proxy, " if settings.proxy else ""
    return Refused(f"{words}: check {proxy}base_url, gateway_url and the network.")


async def _probe_gateway(settings: DiscordSettings, calls: DiscordApi) -> None:
    """The gateway answers. Raises Refused."""
    try:
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=calls.trust or True)) as session,
            session.ws_connect(
                f"{settings.gateway_url}?v=10&encoding=json",
                proxy=settings.proxy or None,
                timeout=aiohttp.ClientWSTimeout(ws_close=1.0),
            ) as socket,
        ):
            await socket.receive_json(timeout=GATEWAY_TIMEOUT_SECONDS)
    except (aiohttp.ClientError, OSError, TypeError, ValueError) as error:
        raise Refused(f"the gateway does not answer ({type(error).__name__})") from None
