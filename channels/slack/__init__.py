"""Slack: channels, threads and direct messages through an app in Socket Mode, with native streams.

This file is what a configuration needs; the SDK is imported when the channel is connected. A message's way in is
`socket` and `events`, its answer's way out `reply`, both over `calls`.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.secret import Secret
from channels.base import Channel
from channels.shared.lifecycle import open_channel
from channels.slack.manifest import app_manifest

if TYPE_CHECKING:
    from channels.slack.channel import SlackChannel

__all__ = ["Settings", "SlackSettings", "WorkspaceTokens", "app_manifest", "connect", "probe"]


@dataclass(frozen=True, slots=True)
class WorkspaceTokens:
    """The tokens of one more workspace. An app that is installed in several has one app token for all of them."""

    bot_token: Secret = field(metadata={"help": "the bot's token in that workspace (xoxb-…)"})
    app_token: Secret = field(metadata={"help": "the app-level token (xapp-…)"})


@dataclass(frozen=True, slots=True)
class SlackSettings:
    """`channels.slack` in config.yaml."""

    bot_token: Secret = field(metadata={"help": "the bot's token (xoxb-…) from OAuth & Permissions"})
    app_token: Secret = field(metadata={"help": "the app-level token (xapp-…) with the scope connections:write"})
    workspaces: tuple[WorkspaceTokens, ...] = field(
        default=(), metadata={"help": "more workspaces: a list of {bot_token, app_token}"}
    )
    base_url: str = field(default="https://slack.com/api/", metadata={"help": "the Web API's URL"})
    proxy: str = field(
        default="", repr=False, metadata={"help": "http proxy for calls, the event socket and files; none is guessed"}
    )
    ca_file: str = field(default="", metadata={"help": "PEM file of certificates to trust instead of the system's"})
    per_channel: float = field(
        default=1.0, metadata={"help": "messages and their changes a second in one channel", "least": 0.01}
    )
    per_stream: float = field(
        default=1.6, metadata={"help": "additions a second to one streamed answer", "least": 0.01}
    )
    ping_seconds: float = field(
        default=10.0, metadata={"help": "how often the event socket is asked whether it is alive", "least": 0.1}
    )

    @property
    def pairs(self) -> tuple[WorkspaceTokens, ...]:
        return (WorkspaceTokens(self.bot_token, self.app_token), *self.workspaces)


Settings = SlackSettings  # the name under which the configuration finds them


def _load_channel_class() -> type[SlackChannel]:
    from channels.slack.channel import SlackChannel

    return SlackChannel


def connect(settings: SlackSettings) -> AbstractAsyncContextManager[Channel]:
    """The channel. It opens no connection yet: `listen` does, and keeps trying."""
    return open_channel(_load_channel_class, settings)


async def probe(settings: SlackSettings) -> str:
    """One look at every workspace: tokens, scopes, the socket. Raises Refused with what to do."""
    async with open_channel(_load_channel_class, settings) as channel:
        return await channel.probe_accounts()
