"""Where is what on Discord: servers, their channels and threads, as the gateway tells them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from agent.conversation import Thread
from channels.base import ChannelError
from channels.discord.api import Calls

log = logging.getLogger(__name__)

NAME = "discord"
DIRECT = "@me"  # the workspace of direct messages, Discord's own word for it (discord.com/channels/@me/…)
EPOCH = 1_420_070_400_000  # milliseconds; discord.com/developers/docs/reference#snowflakes
THREADS = (10, 11, 12)  # channel types: announcement, public and private thread
WRITTEN = (0, 2, 5, 13)  # …with messages of their own: text, voice, announcement, stage


def moment(snowflake: str) -> float:
    """The unix time at which an id was made."""
    return ((int(snowflake) >> 22) + EPOCH) / 1000


def snowflake(time: float) -> str:
    """The smallest id made at a unix time."""
    return str(max(0, round(time * 1000) - EPOCH) << 22)


@dataclass(slots=True)
class Spot:
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


class Places:
    """What is known of them. Unknown ones are looked up."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self.guilds: dict[str, Guild] = {}
        self.spots: dict[str, Spot] = {}

    def learn(self, kind: str, data: dict[str, Any], me: str) -> None:
        """Take an event into account."""
        match kind:
            case "GUILD_CREATE" | "GUILD_UPDATE":
                self.guilds.setdefault(data["id"], Guild()).tier = data.get("premium_tier") or 0
                for role in data.get("roles") or ():
                    self._role(data["id"], role, me)
                for channel in [*(data.get("channels") or ()), *(data.get("threads") or ())]:
                    self._keep(channel, data["id"])
            case "GUILD_DELETE" if not data.get("unavailable"):
                for channel in self.guilds.pop(data["id"], Guild()).members:
                    self.spots.pop(channel, None)
            case "CHANNEL_CREATE" | "CHANNEL_UPDATE" | "THREAD_CREATE" | "THREAD_UPDATE":
                self._keep(data, data.get("guild_id") or "")
            case "CHANNEL_DELETE" | "THREAD_DELETE":
                self.spots.pop(data["id"], None)
            case "THREAD_LIST_SYNC":
                for thread in data.get("threads") or ():
                    self._keep(thread, data["guild_id"])
            case "GUILD_ROLE_CREATE" | "GUILD_ROLE_UPDATE":
                self._role(data["guild_id"], data["role"], me)

    async def address(self, channel: str, guild: str | None) -> Thread:
        """The thread or channel as an address; an unknown one is looked up, or taken for a channel."""
        if not guild:
            return Thread(NAME, DIRECT, channel)
        spot = self.spots.get(channel)
        if spot is None:
            try:
                spot = self._keep(await self._calls("GET", f"/channels/{channel}"), guild)
            except ChannelError as error:
                log.warning("discord.unknown channel=%s reason=%s", channel, error)
                spot = Spot(guild)
        return Thread(NAME, guild, spot.parent or channel, channel if spot.parent else "")

    def opened(self, thread: Thread) -> None:
        """A thread is there."""
        if thread.topic not in self.spots:
            self._put(thread.topic, Spot(thread.workspace, thread.chat))

    def _keep(self, channel: dict[str, Any], guild: str) -> Spot:
        parent = (channel.get("parent_id") or "") if channel["type"] in THREADS else ""
        spot = Spot(guild, parent, channel.get("last_message_id") or "0")
        if parent or channel["type"] in WRITTEN:
            self._put(channel["id"], spot)
        return spot

    def _put(self, channel: str, spot: Spot) -> None:
        self.spots[channel] = spot
        self.guilds.setdefault(spot.guild, Guild()).members.add(channel)

    def _role(self, guild: str, role: dict[str, Any], me: str) -> None:
        if (role.get("tags") or {}).get("bot_id") == me:
            self.guilds.setdefault(guild, Guild()).role = role["id"]
