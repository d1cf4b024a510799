"""Discord: servers, threads and direct messages through a bot on the gateway, without a public address.

This file is what a configuration needs; the SDK is imported when the channel is connected. A message's way in is
`gateway` (the SDK's connection), `intake` and `events`; its answer's way out `reply`
and `rooms` (which thread, made or opened again when needed), both over `calls`.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from agent.secret import Secret
from channels.base import Channel
from channels.shared.lifecycle import open_channel

if TYPE_CHECKING:
    from channels.discord.channel import DiscordChannel


@dataclass(frozen=True, slots=True)
class DiscordSettings:
    """`channels.discord` in config.yaml."""

    token: Secret = field(metadata={"help": "the bot's token from discord.com/developers, page Bot"})
    base_url: str = field(default="https://discord.com/api/v10", metadata={"help": "the API, with its version"})
    gateway_url: str = field(default="wss://gateway.discord.gg/", metadata={"help": "where events come from"})
    proxy: str = field(
        default="",
        repr=False,
        metadata={"help": "http proxy for calls, events and files, with user:password@ if it wants one"},
    )
    ca_file: str = field(default="", metadata={"help": "PEM file of certificates to trust instead of the system's"})
    threads: Literal["thread", "reply"] = field(
        default="thread", metadata={"help": "a mention opens a `thread` of its own, or gets a `reply` in the channel"}
    )
    per_channel: float = field(
        default=0.7, metadata={"help": "calls a second into one channel or thread", "least": 0.01}
    )
    burst: int = field(default=3, metadata={"help": "calls at once into one channel or thread", "least": 1})
    overall: float = field(default=45.0, metadata={"help": "calls a second in all", "least": 1})


Settings = DiscordSettings  # the name under which the configuration finds them


def connect(settings: DiscordSettings) -> AbstractAsyncContextManager[Channel]:
    """The channel. It opens no connection yet: `listen` does, and keeps trying."""

    def load() -> type[DiscordChannel]:
        from channels.discord.channel import DiscordChannel

        return DiscordChannel

    return open_channel(load, settings)


async def probe(settings: DiscordSettings) -> str:
    """One look at the account: a sentence, or Refused with what to do."""
    from channels.discord.account_probe import probe_account  # the calls need aiohttp, which a configuration does not

    return await probe_account(settings)
