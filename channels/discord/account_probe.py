"""Probe the account for `fawn check`."""

from __future__ import annotations

import aiohttp

from catalogue import _
from channels.base import Refused, TryLater
from channels.discord import DiscordSettings
from channels.discord.api import DiscordApi
from channels.discord.setup_guide import invite_link
from channels.discord.texts import INTENT_REFUSED, TOKEN_REJECTED
from channels.shared.account_probe import refusing
from channels.shared.lifecycle import opened

CONTENT_INTENT_FLAGS = 1 << 18 | 1 << 19  # the application may read messages (…/docs/resources/application#flags)
GATEWAY_TIMEOUT_SECONDS = 10.0


async def probe_account(settings: DiscordSettings) -> str:
    suspects = ["base_url", "gateway_url", "proxy", "ca_file"]
    with refusing(settings.base_url, suspects, TOKEN_REJECTED):
        async with opened(DiscordApi(settings)) as api:
            me = await api("GET", "/users/@me")
            application = await api("GET", "/applications/@me")
            guilds = await api("GET", "/users/@me/guilds")
            await _probe_gateway(settings, api)
    if not int(application.get("flags") or 0) & CONTENT_INTENT_FLAGS:
        raise Refused(_(INTENT_REFUSED))
    if not guilds:
        link = invite_link(application["id"])
        return _("connected as @{name}, in no server yet: invite it with {link}", name=me["username"], link=link)
    names = ", ".join(str(guild["name"]) for guild in guilds[:3]) + (", …" if len(guilds) > 3 else "")
    return _("connected as @{name} in {servers}", name=me["username"], servers=names)


async def _probe_gateway(settings: DiscordSettings, api: DiscordApi) -> None:
    url = f"{settings.gateway_url}?v=10&encoding=json"
    try:
        async with api.session.ws_connect(
            url, proxy=api.proxy, timeout=aiohttp.ClientWSTimeout(ws_close=1.0)
        ) as socket:
            await socket.receive_json(timeout=GATEWAY_TIMEOUT_SECONDS)
    except (aiohttp.ClientError, OSError, TypeError, ValueError) as error:
        raise TryLater(_("the gateway does not answer ({error})", error=type(error).__name__)) from None
