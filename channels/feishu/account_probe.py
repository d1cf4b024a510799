"""Probe the app for `fawn check` and name the permissions it lacks."""

from __future__ import annotations

from typing import Any

from channels.base import ChannelError, Refused, TokenRejected
from channels.feishu import FeishuSettings
from channels.feishu.api import ApiRefusal, FeishuApi, ScopeMissing
from channels.feishu.card_api import CardApi
from channels.feishu.card_renderer import FeishuMessage, card_json
from channels.shared.lifecycle import open_channel

CONNECTION_FIX = "Choose “long connection” under Events & Callbacks in the developer console, for events and callbacks."


async def probe_account(settings: FeishuSettings) -> str:
    """Describe the app in a sentence. Raises Refused with what to do."""
    try:
        async with open_channel(lambda: FeishuApi, settings) as api:
            return await _probe_app(api, settings)
    except Refused:
        raise
    except TokenRejected as error:
        raise Refused(str(error)) from None
    except ChannelError as error:
        raise Refused(f"{settings.base_url} cannot be used: {error}. Check `domain`, `proxy` and `ca_file`.") from None


async def _probe_app(api: FeishuApi, settings: FeishuSettings) -> str:
    try:
        answer = await api("GET", "bot/v3/info")
    except ApiRefusal as error:
        raise Refused(f"{error}. Add the Bot capability in the developer console and publish a version.") from None
    bot: dict[str, Any] = answer.get("bot") or answer
    if bot.get("activate_status") not in (None, 2):
        raise Refused("The app is not active: publish a version in the developer console and have it approved.")
    try:
        await api("GET", "im/v1/messages/om_0")
    except ScopeMissing:
        raise Refused("The app may not read messages: add the permission im:message and publish a version.") from None
    except ApiRefusal:
        pass  # this message does not exist, but the call is permitted
    try:
        await CardApi(api).create_card(card_json(FeishuMessage("…", final=True), ""))
    except ScopeMissing:
        raise Refused(
            "The app may not stream cards: add the permission cardkit:card:write and publish a version. Until then"
            " answers come as plain messages."
        ) from None
    try:
        await api.probe_connection()
    except ApiRefusal as error:
        raise Refused(f"{error}. {CONNECTION_FIX}") from None
    return f"connected as {bot.get('app_name', settings.app_id)}"
