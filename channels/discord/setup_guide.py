"""The steps of `fawn setup discord`, and the link that adds the bot to a server."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode
from functools import partial

from catalogue import N_, _
from channels.discord import DiscordSettings
from channels.shared.setup_guide import SetupGuide

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
