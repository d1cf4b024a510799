"""Discord channel: settings and entry points.

The configuration imports only this file; `connect` imports the SDK. `gateway` (the SDK's connection), `inbound` and
`events` receive messages, `reply` and `threads` answer them, both over `api`.
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


Settings = DiscordSettings  # the configuration loader looks for this name


def connect(settings: DiscordSettings) -> AbstractAsyncContextManager[Channel]:
    """Return the channel. It opens no connection until `listen`, which retries by itself."""

    def load() -> type[DiscordChannel]:
        from channels.discord.channel import DiscordChannel

        return DiscordChannel

    return open_channel(load, settings)


async def probe(settings: DiscordSettings) -> str:
    """Probe the account once and describe it. Raises Refused with what to do."""
    from channels.discord.account_probe import probe_account  # parsing a configuration must not import aiohttp

    return await probe_account(settings)
