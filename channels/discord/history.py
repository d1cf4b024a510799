"""Read Discord's history: messages missed while the bot was offline."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

from channels.base import CatchUpSource, Gap, Refused, TryLater
from channels.discord.api import DiscordApi
from channels.discord.guild_cache import DIRECT_WORKSPACE, GuildCache, snowflake_from_time

log = logging.getLogger(__name__)

PAGE_SIZE = 100  # discord.com/developers/docs/resources/message#get-channel-messages
MAX_TRIES = 5

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
