"""Read Slack's history: missed messages, and earlier messages of a thread."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from agent.messages import Message, Quote
from channels.base import CatchUpSource, ChannelError, LastEvent, Refused, TryLater
from channels.slack.api import Json
from channels.slack.events import SlackAccount, parse_event, readable_text
from channels.slack.workspace import Workspace

log = logging.getLogger(__name__)

CONVERSATION_TYPES = "public_channel,private_channel,mpim,im"
MAX_CHATS = 5000  # conversations at most
MAX_PAGES = 1000  # messages of a thread at most, to find the last ones


async def missed_messages(team: Workspace, heard: Sequence[LastEvent], past: CatchUpSource) -> AsyncIterator[Message]:
    """What may matter of what was written since, chat by chat, oldest first. Waits when Slack asks for it.

    A thread is looked at when it was in use lately, or when the message it hangs on was written meanwhile.
    """
    me = await team.identify()
    earliest = time.time() - 3600 * past.hours
    latest = max((entry.time for entry in heard), default=0.0)
    if not latest or not past.hours:
        return
    chats = {entry.chat: entry.time for entry in heard if not entry.topic}
    for chat in await _list_patiently(
        team, "users.conversations", "channels", MAX_CHATS, types=CONVERSATION_TYPES, exclude_archived=True
    ):
        since = max(earliest, chats.get(chat["id"], latest))
        threads = {h.topic: max(earliest, h.time) for h in heard if h.chat == chat["id"] and h.topic}
        try:
            found = await _missed_in_chat(team, me, chat["id"], since, threads, past.most)
        except Refused as error:
            log.info("slack.not_caught_up chat=%s reason=%s", chat["id"], error)
            continue
        for message in found:
            yield message


async def _missed_in_chat(
    team: Workspace, me: SlackAccount, chat: str, since: float, threads: dict[str, float], most: int
) -> list[Message]:
    """One conversation's messages after `since`, and its threads' after their own times."""
    entries = await _list_patiently(
        team, "conversations.history", "messages", most, channel=chat, oldest=f"{since:.6f}"
    )
    for entry in entries:
        if float(entry.get("latest_reply") or 0) > since:
            threads.setdefault(entry["ts"], since)
    for root, after in threads.items():
        try:
            since_then = {"channel": chat, "ts": root, "oldest": f"{after:.6f}"}
            replies = await _list_patiently(team, "conversations.replies", "messages", most, **since_then)
        except Refused as error:  # deleted meanwhile
            log.debug("slack.no_thread chat=%s thread=%s reason=%s", chat, root, error)
            continue
        entries += [entry for entry in replies if entry["ts"] != root]
    messages = [parse_event({"channel": chat, **entry}, me) for entry in entries]
    found = sorted((message for message in messages if message), key=lambda message: message.time)
    return found[-most:]


async def _list_patiently(team: Workspace, method: str, field: str, most: int, **where: Any) -> list[Json]:
    """Every entry of a list, waiting as long as Slack asks. Raises Refused."""
    while True:
        try:
            return [entry async for page in team.calls.list_all(method, field, most, **where) for entry in page]
        except Refused:
            raise
        except ChannelError as error:
            await asyncio.sleep(error.after if isinstance(error, TryLater) else 1.0)


async def earlier_messages(team: Workspace, message: Message, most: int) -> list[Quote]:
    """The last `most` messages that stood in its thread before it, not counting our own. Raises ChannelError."""
    if message.private or most < 1 or message.id == message.thread.topic:
        return []
    me, entries = await team.identify(), list[Json]()
    async for page in team.calls.list_all(
        "conversations.replies",
        "messages",
        MAX_PAGES,
        channel=message.thread.chat,
        ts=message.thread.topic,
        latest=message.id,
    ):
        entries = [*entries, *(e for e in page if e.get("bot_id") != me.bot and e["ts"] != message.id)][-most:]
    quotes = []
    for entry in entries:
        text, _, _ = readable_text(entry.get("text") or "", me)
        files = ", ".join(file.get("name") or "a file" for file in entry.get("files") or ())
        if said := "\n".join(piece for piece in (text, files and f"[{files}]") if piece):
            person = await team.people.find_person(entry.get("user") or "", me.team)
            name = person.name if person else entry.get("username") or entry.get("user") or "somebody"
            quotes.append(Quote(name, await team.with_names(said, me.team), "earlier"))
    return quotes
