"""Cache of guilds, channels and threads, fed by gateway events."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.messages import Thread
from channels.base import ChannelError, Refused
from channels.discord.api import DiscordApi
from channels.shared.caches import ExpiringDict

log = logging.getLogger(__name__)

NAME = "discord"
DIRECT_WORKSPACE = "@me"  # the workspace of direct messages, as in Discord's own links (discord.com/channels/@me/…)
EPOCH_MILLISECONDS = 1_420_070_400_000  # discord.com/developers/docs/reference#snowflakes
THREAD_TYPES = (10, 11, 12)  # channel types: announcement, public and private thread
TEXT_TYPES = (0, 2, 5, 13)  # …with messages of their own: text, voice, announcement, stage
GUEST_FLAG = 1 << 4  # flag of a member who was invited to one voice channel only
MEMBER_SECONDS = 3600.0  # for so long it is known whether a person is a member


def is_guest(member: Mapping[str, Any]) -> bool:
    """Return whether a member of a server is only a guest there."""
    return bool((member.get("flags") or 0) & GUEST_FLAG)


def snowflake_time(snowflake: str) -> float:
    """Return the unix time at which an id was made."""
    return ((int(snowflake) >> 22) + EPOCH_MILLISECONDS) / 1000


def snowflake_from_time(time: float) -> str:
    """Return the smallest id made at a unix time."""
    return str(max(0, round(time * 1000) - EPOCH_MILLISECONDS) << 22)


@dataclass(slots=True)
class ChannelInfo:
    """A channel, or a thread of the channel `parent_id`."""

    guild_id: str
    parent_id: str = ""
    last_message_id: str = "0"
    name: str = ""  # of a thread; "": it was not told
    owner_id: str = ""  # likewise: who opened it


@dataclass(slots=True)
class Guild:
    """A server. A mention of `bot_role`, the bot's own role, mentions the bot too."""

    boost_tier: int = 0
    bot_role: str = ""
    channel_ids: set[str] = field(default_factory=set)  # of its channels and threads


class GuildCache:
    """The known guilds and channels. Unknown channels are fetched."""

    def __init__(self, api: DiscordApi) -> None:
        self._api = api
        self.guilds: dict[str, Guild] = {}
        self.channels: dict[str, ChannelInfo] = {}
        self._outsiders: ExpiringDict[tuple[str, str], bool] = ExpiringDict()  # by server and person

    def note_outsider(self, guild: str, person: str, is_outsider: bool) -> None:
        """Note whether a person has left a server, or is only a guest there: live messages say it."""
        self._outsiders.set((guild, person), is_outsider, MEMBER_SECONDS)

    async def is_outsider(self, guild: str, person: str) -> bool:
        """Return whether a person has left a server, or is only a guest there: what the history does not say.

        Raises TryLater. Whom Discord does not show counts as an outsider
        (discord.com/developers/docs/resources/guild#get-guild-member).
        """
        if (known := self._outsiders.get((guild, person))) is not None:
            return known
        try:
            found = is_guest(await self._api("GET", f"/guilds/{guild}/members/{person}"))
        except Refused:
            found = True
        self.note_outsider(guild, person, found)
        return found

    def apply_event(self, kind: str, data: dict[str, Any], bot_id: str) -> None:
        match kind:
            case "GUILD_CREATE" | "GUILD_UPDATE":
                self.guilds.setdefault(data["id"], Guild()).boost_tier = data.get("premium_tier") or 0
                for role in data.get("roles") or ():
                    self._store_bot_role(data["id"], role, bot_id)
                for channel in [*(data.get("channels") or ()), *(data.get("threads") or ())]:
                    self._store_channel(channel, data["id"])
            case "GUILD_DELETE" if not data.get("unavailable"):
                for channel in self.guilds.pop(data["id"], Guild()).channel_ids:
                    self.channels.pop(channel, None)
            case "CHANNEL_CREATE" | "CHANNEL_UPDATE" | "THREAD_CREATE" | "THREAD_UPDATE":
                self._store_channel(data, data.get("guild_id") or "")
            case "CHANNEL_DELETE" | "THREAD_DELETE":
                self.channels.pop(data["id"], None)
            case "THREAD_LIST_SYNC":
                for thread in data.get("threads") or ():
                    self._store_channel(thread, data["guild_id"])
            case "GUILD_ROLE_CREATE" | "GUILD_ROLE_UPDATE":
                self._store_bot_role(data["guild_id"], data["role"], bot_id)

    def find_thread(self, channel_id: str, guild_id: str | None) -> Thread | None:
        """Return the address of a channel or thread, or None for an unknown one."""
        if not guild_id:
            return Thread(NAME, DIRECT_WORKSPACE, channel_id)
        info = self.channels.get(channel_id)
        return _address(channel_id, info) if info else None

    async def resolve_thread(self, channel_id: str, guild_id: str | None) -> Thread:
        """Return the address of a channel or thread, also of an unknown one. If it cannot be fetched, it counts as a
        channel."""
        if known := self.find_thread(channel_id, guild_id):
            return known
        guild_id = guild_id or ""
        try:
            info = self._store_channel(await self._api("GET", f"/channels/{channel_id}"), guild_id)
        except ChannelError as error:
            log.warning("discord.unknown_channel channel=%s reason=%s", channel_id, error)
            info = ChannelInfo(guild_id)
        return _address(channel_id, info)

    def add_thread(self, thread: Thread, made: dict[str, Any]) -> None:
        """Store a thread that exists, unless its event has come already. `made` is what the call that made it said."""
        if thread.topic not in self.channels:
            named = str(made.get("name") or ""), str(made.get("owner_id") or "")
            self._set_channel(thread.topic, ChannelInfo(thread.workspace, thread.chat, "0", *named))

    def _store_channel(self, channel: dict[str, Any], guild_id: str) -> ChannelInfo:
        parent_id = (channel.get("parent_id") or "") if channel["type"] in THREAD_TYPES else ""
        info = ChannelInfo(guild_id, parent_id, channel.get("last_message_id") or "0")
        if parent_id:
            info.name, info.owner_id = str(channel.get("name") or ""), str(channel.get("owner_id") or "")
        if parent_id or channel["type"] in TEXT_TYPES:
            self._set_channel(channel["id"], info)
        return info

    def _set_channel(self, channel_id: str, info: ChannelInfo) -> None:
        self.channels[channel_id] = info
        self.guilds.setdefault(info.guild_id, Guild()).channel_ids.add(channel_id)

    def _store_bot_role(self, guild_id: str, role: dict[str, Any], bot_id: str) -> None:
        if (role.get("tags") or {}).get("bot_id") == bot_id:
            self.guilds.setdefault(guild_id, Guild()).bot_role = role["id"]


def _address(channel_id: str, info: ChannelInfo) -> Thread:
    return Thread(NAME, info.guild_id, info.parent_id or channel_id, channel_id if info.parent_id else "")
