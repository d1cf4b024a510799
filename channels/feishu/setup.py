"""Set up Feishu: the steps of `fawn setup`, and the probe of `fawn check`."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from catalogue import N_, _, join_sentences, list_items
from channels.base import Refused
from channels.feishu import FeishuSettings
from channels.feishu.api import ApiRefusal, FeishuApi
from channels.shared.lifecycle import CONNECTED, SetupGuide, opened, refusing

REQUIRED_SCOPES = ("im:message", "im:message.p2p_msg:readonly", "im:message.group_at_msg:readonly", "im:resource")
OPTIONAL_SCOPES = {  # without one of these, a part does not work
    "im:message.group_msg": N_("follow-ups in a topic without a mention"),
    "im:chat:readonly": N_("catching up after downtime"),
    "cardkit:card:write": N_("streaming"),
    "contact:contact.base:readonly": N_("names"),
    "contact:user.base:readonly": N_("names"),
    "contact:user.employee:readonly": N_("noticing who has left"),
}
SCOPES = json.dumps({"scopes": {"tenant": [*REQUIRED_SCOPES, *OPTIONAL_SCOPES], "user": []}})
CREATE_APP = N_("""\
Create a custom app: https://open.feishu.cn/app (Lark: https://open.larksuite.com/app). Add features: Bot.
Permissions & Scopes, Batch import, paste:

{scopes}

Version Management: create a version and publish it. Credentials & Basic Info shows the app id (cli_…).""")
SHOW_KEY = N_("The same page shows the app secret.")
CONTACT = N_("""\
Events & Callbacks, both tabs: choose the persistent connection. Add the events im.message.receive_v1,
im.message.recalled_v1, im.message.reaction.created_v1 and application.bot.menu_v6, and the callback
card.action.trigger. Publish another version. Then search for the bot in the app and write to it: {word}""")
GUIDE = SetupGuide(
    lambda settings, account, word: _(CONTACT, word=word),
    {"app_id": partial(_, CREATE_APP, scopes=SCOPES), "app_secret": partial(_, SHOW_KEY)},
)


CONNECTION_FIX = N_(
    "Choose “long connection” under Events & Callbacks in the developer console, for events and callbacks."
)


async def probe_account(settings: FeishuSettings) -> str:
    with refusing(settings.base_url, ["domain", "proxy", "ca_file"]):
        async with opened(FeishuApi(settings)) as api:
            return await _probe_app(api, settings)


async def _probe_app(api: FeishuApi, settings: FeishuSettings) -> str:
    try:
        answer = await api("GET", "bot/v3/info")
    except ApiRefusal as error:
        raise Refused(
            join_sentences(f"{error}.", _("Add the Bot capability in the developer console and publish a version."))
        ) from None
    bot: dict[str, Any] = answer.get("bot") or answer
    if bot.get("activate_status") not in (None, 2):
        raise Refused(_("The app is not active: publish a version in the developer console and have it approved."))
    granted = await api("GET", "application/v6/scopes")
    names = {scope["scope_name"] for scope in granted["scopes"] if scope["grant_status"] == 1}
    if missing := [scope for scope in REQUIRED_SCOPES if scope not in names]:
        raise Refused(
            _("The app lacks the permissions {names}: add them and publish a version.", names=list_items(missing))
        )
    try:
        await api.probe_connection()
    except ApiRefusal as error:
        raise Refused(join_sentences(f"{error}.", _(CONNECTION_FIX))) from None
    lacking = [f"{scope} ({_(use)})" for scope, use in OPTIONAL_SCOPES.items() if scope not in names]
    name = bot.get("app_name", settings.app_id)
    if lacking:
        return _(
            "connected as {name}, without the permissions {permissions}", name=name, permissions=list_items(lacking)
        )
    return _(CONNECTED, name=name)
