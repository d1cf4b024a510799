"""Discord channel: settings and entry points.

The configuration imports only this file; `connect` imports the SDK. `gateway` (the SDK's connection), `inbound` and
`events` receive messages, `reply` and `threads` answer them, both over `api`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from agent.setting import Secret, required, setting
from catalogue import N_
from channels.shared.lifecycle import open_channel, run_probe


@dataclass(frozen=True, slots=True)
class DiscordSettings:
    """`channels.discord` in config.yaml."""

    token: Secret = required(N_("the bot's token, page Bot of discord.com/developers"), environment="DISCORD_BOT_TOKEN")
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
ID_SHAPE = (r"\d+", N_("ids are numbers; `fawn pair list` shows the id of each person who wrote to the bot"))
connect = partial(open_channel, "channels.discord.channel:DiscordChannel")
probe = partial(run_probe, "channels.discord.account_probe:probe_account")
