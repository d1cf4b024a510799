"""Read Discord's history: messages missed while the bot was offline, and keep the latest ones of each channel."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from agent.messages import Quote, Thread
from channels.base import CatchUpSource, Gap, Refused, TryLater
from channels.discord.api import DiscordApi
from channels.discord.events import DiscordAccount, make_quote, read_message
from channels.discord.guild_cache import DIRECT_WORKSPACE, GuildCache, snowflake_from_time
from channels.shared.caches import LatestDict

log = logging.getLogger(__name__)

PAGE_SIZE = 100  # discord.com/developers/docs/resources/message#get-channel-messages
MAX_TRIES = 5
KEPT_CHANNELS, KEPT_MESSAGES, KEPT_CHARS = 200, 100, 30_000  # the last two of a channel
# After these, the gateway may have delivered less than a channel of that server has: the bot was away, or what it may
# see has changed.
GAPS = frozenset(
    {"GUILD_CREATE", "GUILD_DELETE", "CHANNEL_UPDATE", "CHANNEL_DELETE", "GUILD_MEMBER_UPDATE"}
    | {"GUILD_ROLE_UPDATE", "GUILD_ROLE_DELETE"}
)

Json = dict[str, Any]  # Discord defines the shape


async def missed_messages(
    api: DiscordApi, cache: GuildCache, past: CatchUpSource, workspace: str, gap: Gap
) -> AsyncIterator[tuple[str, list[Json]]]:
    """Yield (channel or thread id, its missed messages, oldest first) of a server, or of the direct chats.

    Raises TryLater at the end when some channels could not be read.
    """
    failure: TryLater | None = None
    oldest = time.time() - past.hours * 3600
    for channel_id, since in _channels_to_read(gap, cache, workspace, oldest) if gap.heard or gap.since else ():
        after = snowflake_from_time(max(since, oldest) + 0.001)
        info = cache.channels.get(channel_id)
        if info is not None and int(info.last_message_id) <= int(after):
            continue
        try:
            if messages := await _messages_after(api, channel_id, after, past.most):
                yield channel_id, messages
        except Refused as error:
            log.info("discord.no_history channel=%s reason=%s", channel_id, error)
        except TryLater as error:
            log.warning("discord.no_history channel=%s reason=%s", channel_id, error)
            failure = error
    if failure:
        raise failure


def _channels_to_read(gap: Gap, cache: GuildCache, workspace: str, oldest: float) -> list[tuple[str, float]]:
    """Return the id of each channel and thread to read, and since when.

    Discord does not list threads that were archived meanwhile: those come from the stored times.
    """
    times = {(entry.chat, entry.topic): entry.time for entry in gap.heard}
    if workspace == DIRECT_WORKSPACE:
        return [(chat, time) for (chat, topic), time in times.items() if not topic]
    latest = max(times.values(), default=gap.since)
    found = [
        (topic, time) for (_, topic), time in times.items() if time > oldest and topic not in ("", *cache.channels)
    ]
    for channel_id, info in list(cache.channels.items()):
        if info.guild_id == workspace:
            chat, topic = (info.parent_id, channel_id) if info.parent_id else (channel_id, "")
            found.append((channel_id, times.get((chat, topic), times.get((chat, ""), latest))))
    return found


async def _messages_after(api: DiscordApi, channel_id: str, after: str, limit: int) -> list[Json]:
    """Return at most `limit` messages after an id, oldest first."""
    found: list[Json] = []
    while len(found) < limit:
        size = min(PAGE_SIZE, limit - len(found))
        page = await _get_with_retries(api, f"/channels/{channel_id}/messages?after={after}&limit={size}")
        page.sort(key=lambda message: int(message["id"]))
        found += page
        if len(page) < size:
            break
        after = page[-1]["id"]
    return found


async def _get_with_retries(api: DiscordApi, path: str) -> list[Json]:
    for attempt in range(MAX_TRIES):
        try:
            return list(await api("GET", path))
        except TryLater as error:
            if attempt == MAX_TRIES - 1:
                raise
            await asyncio.sleep(error.after)
    return []


@dataclass(slots=True)
class _Latest:
    """The latest messages of a channel: all from the id `since` on, by their ids; None for one that is no talk."""

    guild: str
    since: int
    quotes: dict[int, Quote | None] = field(default_factory=dict)

    def covers(self, before: int, limit: int, oldest: int) -> bool:
        """Return whether these are all messages between two ids, or the last `limit` of them."""
        return self.since <= oldest + 1 or sum(id < before for id in self.quotes) >= limit

    def trim(self) -> None:
        chars = sum(len(quote.text) for quote in self.quotes.values() if quote)
        for id, quote in [*self.quotes.items()]:
            if len(self.quotes) <= KEPT_MESSAGES and chars <= KEPT_CHARS:
                return
            chars -= len(quote.text) if quote else 0
            del self.quotes[id]
            self.since = id + 1


class RecentTalk:
    """The latest messages of the channels of servers, in memory, as the gateway delivers them.

    Discord is asked for those before the first one of a channel, after a start or a gap.
    """

    def __init__(self, api: DiscordApi) -> None:
        self._api = api
        self.bot_id = ""
        self._latest: LatestDict[str, _Latest] = LatestDict(KEPT_CHANNELS)
        self._reading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def note(self, guild: str, channel_id: str, message_id: str, quote: Quote | None) -> None:
        """Note a new message."""
        latest = self._latest.get(channel_id) or _Latest(guild, int(message_id))
        self._latest[channel_id] = latest
        latest.quotes[int(message_id)] = quote
        latest.trim()

    def change(self, channel_id: str, message_id: str, quote: Quote | None) -> None:
        """Note what a message says now."""
        latest = self._latest.get(channel_id)
        if latest and int(message_id) in latest.quotes:
            latest.quotes[int(message_id)] = quote

    def remove(self, channel_id: str, message_ids: Collection[str]) -> None:
        """Forget deleted messages."""
        if latest := self._latest.get(channel_id):
            for message_id in message_ids:
                latest.quotes.pop(int(message_id), None)

    def forget(self, guild: str = "") -> None:
        """Forget the messages of a server, or ("") all: some may not have been delivered."""
        for channel_id in [id for id, latest in self._latest.items() if guild in ("", latest.guild)]:
            del self._latest[channel_id]

    async def above(self, place: Thread, before: int, limit: int, oldest: int) -> list[Quote | None]:
        """Return the last `limit` messages of a channel or thread between two ids, in order. Raises ChannelError."""
        channel_id = place.topic or place.chat
        async with self._reading.setdefault(channel_id, asyncio.Lock()):  # what one reads, the next one knows
            latest = self._latest.get(channel_id)
            if latest is None or not latest.covers(before, limit, oldest):
                latest = await self._read(place, channel_id, before, limit)
        ids = [id for id in latest.quotes if id < before][-limit:]
        return [latest.quotes[id] for id in ids if id > oldest]

    async def find(self, place: Thread, message_id: str) -> Quote | None:
        """Return one message of a channel; None if it is gone, or no talk."""
        channel_id, id = place.topic or place.chat, int(message_id)
        if (latest := self._latest.get(channel_id)) and id in latest.quotes:
            return latest.quotes[id]
        try:
            return self._quote(await self._api("GET", f"/channels/{channel_id}/messages/{message_id}"), place)
        except Refused:
            return None

    async def _read(self, place: Thread, channel_id: str, before: int, limit: int) -> _Latest:
        """Read a page of the history, and add it to what came after it."""
        found: list[Json] = await self._api("GET", f"/channels/{channel_id}/messages?before={before}&limit={limit}")
        found = sorted(found, key=lambda data: int(data["id"]))
        since = int(found[0]["id"]) if len(found) >= limit else 0
        page = {int(data["id"]): self._quote(data, place) for data in found}
        after = self._latest.get(channel_id)
        if after and since < after.since <= before:
            after.quotes, after.since = page | after.quotes, since
            after.trim()
        return _Latest(place.workspace, since, page)

    def _quote(self, data: Json, place: Thread) -> Quote | None:
        return make_quote(read_message(data, place, DiscordAccount(self.bot_id, opens_threads=False)))
