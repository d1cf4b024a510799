"""Discord channel: settings and entry points.

The configuration imports only this file; `connect` imports the SDK. `gateway` (the SDK's connection), `inbound` and
`events` receive messages, `reply` and `threads` answer them, both over `api`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from agent.setting import Secret, required, setting
from catalogue import N_
from channels.shared.ids import IdForms
from channels.shared.lifecycle import open_channel, run_probe


@dataclass(frozen=True, slots=True)
class DiscordSettings:
    """`channels.discord` in config.yaml."""

    token: Secret = required(
        N_("the bot's token, page Bot of discord.com/developers"),
        environment="DISCORD_BOT_TOKEN",
        shape=r"[\w-]{4,}={0,2}\.[\w-]{4,}\.[\w-]{6,}",  # hexdocs.pm/nostrum/Nostrum.Token.html
        looks=N_("three parts with dots between them, from the page Bot; no application id and no client secret"),
    )
    base_url: str = setting("https://discord.com/api/v10", "URL of the API, with its version")
    gateway_url: str = setting("wss://gateway.discord.gg/", "URL of the gateway, which delivers events")
    proxy: str = setting("", "HTTP proxy for calls, events and files, with user:password@ if it needs them", repr=False)
    ca_file: str = setting("", "PEM file with certificate authorities to trust instead of the system's")
    threads: Literal["thread", "reply"] = setting(
        "thread", "how a mention is answered: `thread` opens a thread for it, `reply` replies in the channel"
    )
    per_channel: float = setting(0.7, "calls per second in one channel or thread", ge=0.01)
    burst: int = setting(3, "calls at once in one channel or thread", ge=1)
    overall: float = setting(45.0, "calls per second in all channels together", ge=1)


Settings = DiscordSettings  # the configuration loader looks for this name
IDS = IdForms(  # snowflakes (discord.com/developers/docs/reference#snowflakes); `@me` stands for all direct chats
    r"\d{15,20}",
    r"\d+|@me",
    N_("ids are numbers; `fawn pair list` shows the id of each person who wrote to the bot"),
)
MORE_HOSTS: Mapping[str, Sequence[str]] = {
    "discord.com": ("*.discord.gg", "cdn.discordapp.com", "media.discordapp.net")
}  # docs.discord.com: resume_gateway_url, and the URLs of attachments
connect = partial(open_channel, "channels.discord.channel:DiscordChannel")
probe = partial(run_probe, "channels.discord.setup:probe_account")
