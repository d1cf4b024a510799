"""Cache of guilds, channels and threads, fed by gateway events."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from agent.messages import Thread
from channels.base import ChannelError
from channels.discord.api import DiscordApi

log = logging.getLogger(__name__)

NAME = "discord"
DIRECT_WORKSPACE = "@me"  # the workspace of direct messages, Discord's own word for it (discord.com/channels/@me/…)
EPOCH_MILLISECONDS = 1_420_070_400_000  # milliseconds; discord.com/developers/docs/reference#snowflakes
THREAD_TYPES = (10, 11, 12)  # channel types: announcement, public and private thread
TEXT_TYPES = (0, 2, 5, 13)  # …with messages of their own: text, voice, announcement, stage


def snowflake_time(snowflake: str) -> float:
    """The unix time at which an id was made."""
    return ((int(snowflake) >> 22) + EPOCH_MILLISECONDS) / 1000


def snowflake_at(time: float) -> str:
    """The smallest id made at a unix time."""
    return str(max(0, round(time * 1000) - EPOCH_MILLISECONDS) << 22)


@dataclass(slots=True)
class ChannelInfo:
    """A channel, or a thread of the channel `parent`. `last` is its latest message."""

    guild: str
    parent: str = ""
    last: str = "0"


@dataclass(slots=True)
class Guild:
    """A server: `role` is the bot's own role there, by which it can be mentioned too."""

    tier: int = 0
    role: str = ""
    members: set[str] = field(default_factory=set)  # ids of its channels and threads


class GuildCache:
    """What is known of them. Unknown ones are looked up."""

    def __init__(self, calls: DiscordApi) -> None:
        self._calls = calls
        self.guilds: dict[str, Guild] = {}
        self.spots: dict[str, ChannelInfo] = {}

    def update(self, kind: str, data: dict[str, Any], me: str) -> None:
        """Take an event into account."""
        match kind:
            case "GUILD_CREATE" | "GUILD_UPDATE":
                self.guilds.setdefault(data["id"], Guild()).tier = data.get("premium_tier") or 0
                for role in data.get("roles") or ():
                    self._note_role(data["id"], role, me)
                for channel in [*(data.get("channels") or ()), *(data.get("threads") or ())]:
                    self._store_channel(channel, data["id"])
            case "GUILD_DELETE" if not data.get("unavailable"):
                for channel in self.guilds.pop(data["id"], Guild()).members:
                    self.spots.pop(channel, None)
            case "CHANNEL_CREATE" | "CHANNEL_UPDATE" | "THREAD_CREATE" | "THREAD_UPDATE":
                self._store_channel(data, data.get("guild_id") or "")
            case "CHANNEL_DELETE" | "THREAD_DELETE":
                self.spots.pop(data["id"], None)
            case "THREAD_LIST_SYNC":
                for thread in data.get("threads") or ():
                    self._store_channel(thread, data["guild_id"])
            case "GUILD_ROLE_CREATE" | "GUILD_ROLE_UPDATE":
                self._note_role(data["guild_id"], data["role"], me)

    async def resolve_thread(self, channel: str, guild: str | None) -> Thread:
        """The thread or channel as an address; an unknown one is looked up, or taken for a channel."""
        if not guild:
            return Thread(NAME, DIRECT_WORKSPACE, channel)
        spot = self.spots.get(channel)
        if spot is None:
            try:
                spot = self._store_channel(await self._calls("GET", f"/channels/{channel}"), guild)
            except ChannelError as error:
                log.warning("discord.unknown channel=%s reason=%s", channel, error)
                spot = ChannelInfo(guild)
        return Thread(NAME, guild, spot.parent or channel, channel if spot.parent else "")

    def thread_opened(self, thread: Thread) -> None:
        """A thread is there."""
        if thread.topic not in self.spots:
            self._set_channel(thread.topic, ChannelInfo(thread.workspace, thread.chat))

    def _store_channel(self, channel: dict[str, Any], guild: str) -> ChannelInfo:
        parent = (channel.get("parent_id") or "") if channel["type"] in THREAD_TYPES else ""
        spot = ChannelInfo(guild, parent, channel.get("last_message_id") or "0")
        if parent or channel["type"] in TEXT_TYPES:
            self._set_channel(channel["id"], spot)
        return spot

    def _set_channel(self, channel: str, spot: ChannelInfo) -> None:
        self.spots[channel] = spot
        self.guilds.setdefault(spot.guild, Guild()).members.add(channel)

    def _note_role(self, guild: str, role: dict[str, Any], me: str) -> None:
        if (role.get("tags") or {}).get("bot_id") == me:
            self.guilds.setdefault(guild, Guild()).role = role["id"]
