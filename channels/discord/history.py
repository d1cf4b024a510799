"""Read Discord's history: messages missed while the bot was offline."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from channels.base import CatchUpSource, LastEvent, Refused, TryLater
from channels.discord.api import DiscordApi
from channels.discord.guild_cache import DIRECT_WORKSPACE, GuildCache, snowflake_at

log = logging.getLogger(__name__)

PAGE_SIZE = 100  # messages of one look (discord.com/developers/docs/resources/message#get-channel-messages)
MAX_TRIES = 5

Json = dict[str, Any]  # the shape is Discord's


async def missed_messages(
    calls: DiscordApi, places: GuildCache, past: CatchUpSource, workspace: str, heard: Sequence[LastEvent]
) -> AsyncIterator[tuple[str, list[Json]]]:
    """(channel or thread, its messages since it was heard, oldest first) of a server, or of the direct chats. Raises
    TryLater in the end when some could not be read."""
    unread: TryLater | None = None
    oldest = time.time() - past.hours * 3600
    for channel, since in _chats_to_read(heard, places, workspace, oldest) if heard else ():
        after = snowflake_at(max(since, oldest) + 0.001)
        spot = places.spots.get(channel)
        if spot is not None and int(spot.last) <= int(after):
            continue
        try:
            if messages := await _messages_after(calls, channel, after, past.most):
                yield channel, messages
        except Refused as error:
            log.info("discord.no_history channel=%s reason=%s", channel, error)
        except TryLater as error:
            log.warning("discord.no_history channel=%s reason=%s", channel, error)
            unread = error
    if unread:
        raise unread


def _chats_to_read(
    heard: Sequence[LastEvent], places: GuildCache, workspace: str, oldest: float
) -> list[tuple[str, float]]:
    """Each channel and thread to look into, and since when. Threads that were archived lately are told of nowhere."""
    times = {(entry.chat, entry.topic): entry.time for entry in heard}
    if workspace == DIRECT_WORKSPACE:
        return [(chat, time) for (chat, topic), time in times.items() if not topic]
    latest = max(times.values())
    found = [(topic, time) for (_, topic), time in times.items() if time > oldest and topic not in ("", *places.spots)]
    for channel, spot in list(places.spots.items()):
        if spot.guild != workspace:
            continue
        chat, topic = (spot.parent, channel) if spot.parent else (channel, "")
        found.append((channel, times.get((chat, topic), times.get((chat, ""), latest))))
    return found


async def _messages_after(calls: DiscordApi, channel: str, after: str, most: int) -> list[Json]:
    """At most so many messages after an id, oldest first."""
    found: list[Json] = []
    while len(found) < most:
        limit = min(PAGE_SIZE, most - len(found))
        page = await _get_with_retries(calls, f"/channels/{channel}/messages?after={after}&limit={limit}")
        page.sort(key=lambda message: int(message["id"]))
        found += page
        if len(page) < limit:
            break
        after = page[-1]["id"]
    return found


async def _get_with_retries(calls: DiscordApi, path: str) -> list[Json]:
    for tries in range(MAX_TRIES):
        try:
            return list(await calls("GET", path))
        except TryLater as error:
            if tries == MAX_TRIES - 1:
                raise
            await asyncio.sleep(error.after)
    return []
