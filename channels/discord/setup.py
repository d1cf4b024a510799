"""Set up Discord: the steps of `fawn setup`, the link that adds the bot, and the probe of `fawn check`."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode
from functools import partial

import aiohttp

from catalogue import N_, _
from channels.base import Refused, TryLater
from channels.discord import DiscordSettings
from channels.discord.api import INTENT_REFUSED, TOKEN_REJECTED, DiscordApi
from channels.shared.lifecycle import SetupGuide, opened, refusing

# Permission bits that docs/setup-discord.md asks for (…/docs/topics/permissions)
REQUIRED_PERMISSIONS = sum(1 << bit for bit in (10, 11, 14, 15, 16, 34, 35, 38))
CREATE_BOT = N_("""\
Create the bot: open https://discord.com/developers/applications, choose New Application and enter a name.
On the page Bot, enable Message Content Intent, save, and press Reset Token to see the token.""")
CONTACT = N_("""\
Add the bot to your server: {link}
Then click its name in the member list, choose Message, and write: {word}""")


def invite_link(application: str) -> str:
    """Return the link that adds the bot to a server, for an application's id."""
    link = f"https://discord.com/oauth2/authorize?client_id={application}&scope=bot+applications.commands"
    return f"{link}&permissions={REQUIRED_PERMISSIONS}"


def _describe_contact(settings: DiscordSettings, account: str, word: str) -> str:
    return _(CONTACT, link=invite_link(_application_id(settings.token.reveal())), word=word)


def _application_id(token: str) -> str:
    """Return the bot's id, which is the first part of its token, in base64."""
    first = token.partition(".")[0]
    try:
        return urlsafe_b64decode(first + "=" * (-len(first) % 4)).decode("ascii", "replace")
    except binascii.Error:
        return "YOUR_APPLICATION_ID"


GUIDE = SetupGuide(_describe_contact, {"token": partial(_, CREATE_BOT)})


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
            url, proxy=api.proxy_for(url), timeout=aiohttp.ClientWSTimeout(ws_close=1.0)
        ) as socket:
            await socket.receive_json(timeout=GATEWAY_TIMEOUT_SECONDS)
    except (aiohttp.ClientError, OSError, TypeError, ValueError) as error:
        raise TryLater(_("the gateway does not answer ({error})", error=type(error).__name__)) from None
