"""Telegram: private chats, groups and forum topics through a bot, by long polling.

The configuration imports only this file; `connect` imports the SDK. `polling` and `events` receive messages, `reply`
answers them, both over `api` and `transport`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.secret import Secret
from channels.base import Channel
from channels.shared.http_client import check_proxy
from channels.shared.lifecycle import open_channel

if TYPE_CHECKING:
    from channels.telegram.channel import TelegramChannel


@dataclass(frozen=True, slots=True)
class TelegramSettings:
    """`channels.telegram` in config.yaml."""

    token: Secret = field(metadata={"help": "the bot's token from @BotFather"})
    base_url: str = field(
        default="https://api.telegram.org", metadata={"help": "the Bot API server, without /bot; your own server's URL"}
    )
    proxy: str = field(
        default="", repr=False, metadata={"help": "http(s) proxy for every call, with user:password@ if it wants one"}
    )
    ca_file: str = field(default="", metadata={"help": "PEM file of certificates to trust instead of the system's"})
    drafts: bool = field(
        default=False,
        metadata={"help": "stream private replies as drafts; they end in a new message instead of an edit"},
    )
    poll_seconds: float = field(default=25.0, metadata={"help": "how long one request for updates may wait"})
    per_chat: float = field(default=1.0, metadata={"help": "calls a second into one chat", "least": 0.01})
    burst: int = field(default=2, metadata={"help": "calls at once into one chat", "least": 1})
    per_group: float = field(default=20.0, metadata={"help": "calls a minute into one group", "least": 1})
    overall: float = field(default=30.0, metadata={"help": "calls a second into all chats together", "least": 1})


Settings = TelegramSettings  # the name under which the configuration finds them


def connect(settings: TelegramSettings) -> AbstractAsyncContextManager[Channel]:
    """Return the channel; `listen` connects it. Raises Refused for a proxy of another kind than HTTP."""
    check_proxy(settings.proxy)

    def load() -> type[TelegramChannel]:
        from channels.telegram.channel import TelegramChannel

        return TelegramChannel

    return open_channel(load, settings)


async def probe(settings: TelegramSettings) -> str:
    """Return a sentence about the account. Raises Refused with what to do."""
    check_proxy(settings.proxy)

    def load() -> Callable[[TelegramSettings], Awaitable[str]]:
        from channels.telegram import account_probe

        return account_probe.probe

    return await (await asyncio.to_thread(load))(settings)
