"""Telegram: private chats, groups and forum topics through a bot, by long polling.

The configuration imports only this file; `connect` imports the SDK. `polling` and `events` receive messages, `reply`
answers them, both over `api`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from agent.setting import Secret, required, setting
from catalogue import N_
from channels.shared.ids import IdForms
from channels.shared.lifecycle import open_channel, run_probe


@dataclass(frozen=True, slots=True)
class TelegramSettings:
    """`channels.telegram` in config.yaml."""

    token: Secret = required(
        N_("the bot's token from @BotFather"),
        environment="TELEGRAM_BOT_TOKEN",
        shape=r"\d{6,20}:[\w-]{10,60}(?:/test)?",
        looks="digits, a colon, and letters: 123456789:AAH…",
    )
    base_url: str = setting("https://api.telegram.org", "URL of the Bot API server, without /bot")
    proxy: str = setting("", "HTTP proxy for all calls, with user:password@ if it needs them", repr=False)
    ca_file: str = setting("", "PEM file with certificate authorities to trust instead of the system's")
    drafts: bool = setting(
        False, "stream private replies as drafts; the final reply is then a new message, not an edit"
    )
    rich_messages: bool = setting(
        False, "show answers with tables or task lists as rich messages (Bot API 10.1), which older apps do not show"
    )
    poll_seconds: float = setting(20.0, "how long one request for updates waits", ge=0)
    account_seconds: float = setting(
        3600.0,
        "how often Fawn asks for the bot's own name, by which groups mention it: it may change",
        ge=0.1,
    )
    per_chat: float = setting(1.0, "calls per second in one chat", ge=0.01)
    burst: int = setting(2, "calls at once in one chat", ge=1)
    per_group: float = setting(20.0, "calls per minute in one group", ge=1)
    overall: float = setting(30.0, "calls per second in all chats together", ge=1)


Settings = TelegramSettings  # the name under which the configuration finds them
IDS = IdForms(  # of people, and of groups, which are negative (core.telegram.org/bots/api#chat)
    r"[1-9]\d*",
    r"-?\d+",
    N_("ids are numbers; `fawn pair list` shows the id of each person who wrote to the bot"),
)
MORE_HOSTS: Mapping[str, Sequence[str]] = {}  # files come from the API's host, core.telegram.org/bots/api#getfile
connect = partial(open_channel, "channels.telegram.channel:TelegramChannel")
probe = partial(run_probe, "channels.telegram.setup:probe")
