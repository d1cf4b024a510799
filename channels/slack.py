"""Slack: channels, threads and direct messages through an app in Socket Mode, with native streams.

This file is what a configuration needs; the SDK is imported when the channel is connected.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from agent.conversation import Secret
from channels.base import Channel, Refused


@dataclass(frozen=True, slots=True)
class Settings:
    """`channels.slack` in config.yaml."""

    bot_token: Secret = field(metadata={"help": "the bot's token (xoxb-…)"})
    app_token: Secret = field(metadata={"help": "the app-level token with connections:write (xapp-…)"})
    base_url: str = field(default="https://slack.com/api/", metadata={"help": "the Web API's URL"})


@asynccontextmanager
async def connect(settings: Settings) -> AsyncIterator[Channel]:
    """The channel."""
    raise Refused("Slack is not ready yet")
    yield  # the rest of a generator


async def probe(settings: Settings) -> str:
    """One look at the account. Raises Refused."""
    raise Refused("Slack is not ready yet")
