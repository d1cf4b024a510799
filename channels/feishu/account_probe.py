"""Probe the app for `fawn check` and name what it lacks."""

from __future__ import annotations

from typing import Any

import orjson

from channels.base import ChannelError, Refused
from channels.feishu import FeishuSettings
from channels.feishu.api import ApiRefusal, CredentialsRejected, FeishuApi, ScopeMissing
from channels.feishu.card_renderer import FeishuMessage, card_json

_SOCKET = "Choose “long connection” under Events & Callbacks in the developer console, for events and for callbacks."


async def probe_account(settings: FeishuSettings) -> str:
    """A sentence about the app. Raises Refused with what to do."""
    calls = FeishuApi(settings)
    await calls.open()
    try:
        return await _probe_app(calls, settings)
    except Refused:
        raise
    except CredentialsRejected as error:
        raise Refused(str(error)) from None
    except ChannelError as error:
        raise Refused(f"{settings.base_url} cannot be used: {error}. Check `domain`, `proxy` and `ca_file`.") from None
    finally:
        await calls.close()


async def _probe_app(calls: FeishuApi, settings: FeishuSettings) -> str:
    try:
        answer = await calls("GET", "bot/v3/info")
    except ApiRefusal as error:
        raise Refused(f"{error}. Add the Bot capability in the developer console and publish a version.") from None
    bot: dict[str, Any] = answer.get("bot") or answer
    if bot.get("activate_status") not in (None, 2):
        raise Refused("The app is not active: publish a version in the developer console and have it approved.")
    try:
        await calls("GET", "im/v1/messages/om_0")
    except ScopeMissing:
        raise Refused("The app may not read messages: add the permission im:message and publish a version.") from None
    except ApiRefusal:
        pass  # there is no such message, which is all that is to be heard
    try:
        await calls(
            "POST",
            "cardkit/v1/cards",
            {"type": "card_json", "data": orjson.dumps(card_json(FeishuMessage("…", final=True), "")).decode()},
        )
    except ScopeMissing:
        raise Refused(
            "The app may not stream cards: add the permission cardkit:card:write and publish a version. Until then"
            " answers come as plain messages."
        ) from None
    try:
        await calls.connection_endpoint()
    except ApiRefusal as error:
        raise Refused(f"{error}. {_SOCKET}") from None
    return f"connected as {bot.get('app_name', settings.app_id)}"
