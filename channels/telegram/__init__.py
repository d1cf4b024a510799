"""Telegram: private chats, groups and forum topics through a bot, by long polling.

This file is what a configuration needs; the SDK is imported when the channel is connected. A message's way in is
`events`, its answer's way out `reply`, both over `calls` and `request`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.conversation import Secret
from channels.base import Channel, Refused
from channels.shared.lifecycle import opened

if TYPE_CHECKING:
    from channels.telegram.channel import Telegram


@dataclass(frozen=True, slots=True)
class Settings:
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


def connect(settings: Settings) -> AbstractAsyncContextManager[Channel]:
    """The channel. It opens no connection yet: `listen` does, and keeps trying. Raises Refused for a proxy of a kind
    that it cannot use."""
    _check(settings)

    def load() -> type[Telegram]:
        from channels.telegram.channel import Telegram

        return Telegram

    return opened(load, settings)


async def probe(settings: Settings) -> str:
    """One look at the account: a sentence, or Refused with what to do."""
    _check(settings)

    def load() -> Callable[[Settings], Awaitable[str]]:
        from channels.telegram.probe import look

        return look

    return await (await asyncio.to_thread(load))(settings)


def _check(settings: Settings) -> None:
    if settings.proxy and not settings.proxy.lower().startswith(("http://", "https://")):
        kind = settings.proxy.partition("://")[0] if "://" in settings.proxy else "unnamed"
        raise Refused(f"a proxy of kind {kind[:10]} cannot be used: `proxy` takes http://… or https://…")
