"""Probe the app for `fawn check` and name the permissions it lacks."""

from __future__ import annotations

from typing import Any

from catalogue import N_, _, join_sentences, list_items
from channels.base import Refused
from channels.feishu import FeishuSettings
from channels.feishu.api import ApiRefusal, FeishuApi
from channels.feishu.setup_guide import OPTIONAL_SCOPES, REQUIRED_SCOPES
from channels.shared.account_probe import CONNECTED, refusing
from channels.shared.lifecycle import opened

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
    lacking = [f"{scope} ({use})" for scope, use in OPTIONAL_SCOPES.items() if scope not in names]
    name = bot.get("app_name", settings.app_id)
    if lacking:
        return _(
            "connected as {name}, without the permissions {permissions}", name=name, permissions=list_items(lacking)
        )
    return _(CONNECTED, name=name)
