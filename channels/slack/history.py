"""Read Slack's history: missed messages, and earlier messages of a thread."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from agent.messages import Kind, Message, Quote, omitted
from channels.base import CatchUpSource, ChannelError, LastEvent, Refused
from channels.slack.events import Json, SlackAccount, has_own_words, parse_event, readable_text, visible_text
from channels.slack.workspace import Workspace

log = logging.getLogger(__name__)

CONVERSATION_TYPES = "public_channel,private_channel,mpim,im"
MAX_CHATS = 5000
SLACK_RETRY_SECONDS = (
    300.0  # Slack repeats an event that no socket took after 1 and 5 minutes (docs.slack.dev/apis/events-api)
)
IN_USE_SECONDS = 3600.0  # since its last event: after a shorter gap only such conversations and threads are read
MAX_VIEWS, MAX_VIEWED, VIEW_SECONDS = 2, 15, 5.0  # open channels, and the messages that are read in each
MAX_THREAD_MESSAGES = 1000  # that are read at once to find the last ones
THREAD_SECONDS = (600.0, 3600.0, 6 * 3600.0, 86400.0, 7 * 86400.0, 60 * 86400.0)  # before the end of a longer thread
_SAID = ("", "bot_message", "file_share", "me_message", "thread_broadcast")  # subtypes of what somebody said


async def missed_messages(
    workspace: Workspace, heard: Sequence[LastEvent], catch_up: CatchUpSource, away_since: float
) -> AsyncIterator[list[Message]]:
    """Yield the messages since the last events, those of a chat at once, oldest first, within the rate limit.

    Reads a thread if it was in use before, or if it began meanwhile. After a short absence, reads only what is in use:
    Slack itself repeats other events.
    """
    account = await workspace.identify()
    earliest = time.time() - 3600 * catch_up.hours
    latest = max((entry.time for entry in heard), default=0.0)
    if not latest or not catch_up.hours:
        return
    short = time.time() - away_since < SLACK_RETRY_SECONDS
    heard = [entry for entry in heard if not short or entry.time > time.time() - IN_USE_SECONDS]
    chats = {entry.chat: entry.time for entry in heard if not entry.topic}
    asked = list(chats)
    if not short:
        query: Json = {"types": CONVERSATION_TYPES, "exclude_archived": True}
        joined = await _list_until_complete(workspace, "users.conversations", "channels", MAX_CHATS, **query)
        asked = [chat["id"] for chat in joined]
    for chat in asked:
        since = max(earliest, chats.get(chat, latest))
        threads = {h.topic: max(earliest, h.time) for h in heard if h.chat == chat and h.topic}
        try:
            yield await _missed_in_chat(workspace, account, chat, since, threads, catch_up.most)
        except Refused as error:
            log.info("slack.not_caught_up chat=%s reason=%s", chat, error)


async def _missed_in_chat(
    workspace: Workspace, account: SlackAccount, chat: str, since: float, threads: dict[str, float], limit: int
) -> list[Message]:
    """Return the messages of a conversation after `since`, and those of its threads after their own times."""
    entries = await _list_until_complete(
        workspace, "conversations.history", "messages", limit, channel=chat, oldest=f"{since:.6f}"
    )
    for entry in entries:
        if float(entry.get("latest_reply") or 0) > since:
            threads.setdefault(entry["ts"], since)
    for root, last_event in threads.items():
        try:
            since_then = {"channel": chat, "ts": root, "oldest": f"{last_event:.6f}"}
            replies = await _list_until_complete(workspace, "conversations.replies", "messages", limit, **since_then)
        except Refused as error:  # deleted meanwhile
            log.debug("slack.no_thread chat=%s thread=%s reason=%s", chat, root, error)
            continue
        entries += [entry for entry in replies if entry["ts"] != root]
    messages = [parse_event({"channel": chat, **entry}, account) for entry in entries]
    found = sorted((message for message in messages if message), key=lambda message: message.time)
    return found[-limit:]


async def _list_until_complete(workspace: Workspace, method: str, field: str, limit: int, **query: Any) -> list[Json]:
    """Return a whole list, retrying as often as needed. Raises Refused."""
    while True:
        try:
            pages = workspace.api.list_pages(method, field, limit, **query)
            return [entry async for page in pages for entry in page]
        except Refused:
            raise
        except ChannelError as error:
            await asyncio.sleep(error.after)


async def earlier_messages(workspace: Workspace, message: Message, limit: int, since: float = 0.0) -> list[Quote]:
    """Return the last messages of other authors above it, in its thread or, if it begins one, in its channel.

    Those of a thread begin with its root, and say how many are left out. Raises ChannelError.
    """
    if message.private or limit < 1 or message.kind is not Kind.CHAT:
        return []
    account, thread = await workspace.identify(), message.thread
    is_reply = thread.topic not in ("", message.id)
    query: Json = {"channel": thread.chat, "latest": message.id if _is_time(message.id) else f"{message.time:.6f}"}
    query |= {"oldest": f"{since:.6f}"} if since else {}
    if is_reply:
        root, entries, left_out = await _read_thread(workspace, message, account, query, limit)
        above = [await _make_quote(workspace, entry, account) for entry in root if float(entry["ts"]) > since]
        quotes = [await _make_quote(workspace, entry, account) for entry in entries]
        gap = [omitted(left_out)] if left_out != 0 else []
        return [*filter(None, above), *gap, *filter(None, quotes)]
    entries = []  # the newest come first
    async for page in workspace.api.list_pages("conversations.history", "messages", limit, **query):
        entries += _of_others(page, message, account)
    entries = entries[limit - 1 :: -1] if len(entries) > limit else entries[::-1]
    return [quote for entry in entries if (quote := await _make_quote(workspace, entry, account))]


async def _read_thread(
    workspace: Workspace, message: Message, account: SlackAccount, query: Json, limit: int
) -> tuple[list[Json], list[Json], int | None]:
    """Return the root of a thread, the last messages of others above a message, and how many between are left out; None
    for more than are counted. A page begins with the oldest, so the end of a long thread is found by time."""
    root, entries, is_whole = await _read_replies(workspace, message, account, query)
    first, last, is_counted = float(query.get("oldest") or 0), float(query["latest"]), is_whole
    for seconds in () if is_whole else THREAD_SECONDS:
        since = max(first, last - seconds)
        again, found, is_whole = await _read_replies(workspace, message, account, {**query, "oldest": f"{since:.6f}"})
        root = root or again
        if is_whole or seconds == THREAD_SECONDS[0]:
            entries = found
        if not is_whole or len(found) >= limit or since == first:
            break
    left_out = max(0, len(entries) - limit) if is_counted else None
    return root, entries[-limit:], left_out


async def _read_replies(
    workspace: Workspace, message: Message, account: SlackAccount, query: Json
) -> tuple[list[Json], list[Json], bool]:
    """Return the root of a thread if it comes along, the messages of others from the oldest on, and whether these are
    all."""
    topic, count = message.thread.topic, 0
    root, entries = dict[str, Json](), list[Json]()
    async for page in workspace.api.list_pages(
        "conversations.replies", "messages", MAX_THREAD_MESSAGES, ts=topic, **query
    ):
        count += len(page)
        for entry in _of_others(page, message, account):
            if entry["ts"] == topic:
                root[topic] = entry
            elif float(entry["ts"]) > float(query.get("oldest") or 0):
                entries.append(entry)
        if not query.get("oldest") and int(root.get(topic, {}).get("reply_count") or 0) > MAX_THREAD_MESSAGES:
            return [*root.values()], entries, False
    return [*root.values()], entries, count < MAX_THREAD_MESSAGES


async def viewed_messages(workspace: Workspace, message: Message) -> list[Quote]:
    """Return the latest messages of the channels that the author of a first message had open, where Slack shows them.

    They see these channels themselves. A follow-up brings none: the conversation has them, or could ask.
    """
    if message.thread.topic not in ("", message.id) or message.kind is not Kind.CHAT:
        return []
    account, found = await workspace.identify(), list[Quote]()
    for view in [quote for quote in message.quotes if quote.kind == "view"][:MAX_VIEWS]:
        try:
            async with asyncio.timeout(VIEW_SECONDS):
                query: Json = {"channel": view.id, "limit": MAX_VIEWED, "latest": message.id}
                page = (await workspace.api("conversations.history", **query)).get("messages") or ()
                quotes = [await _make_quote(workspace, each, account) for each in _of_others(page, message, account)]
        except (ChannelError, TimeoutError) as error:
            log.info("slack.no_view channel=%s reason=%s", view.id, error or "no answer in time")
            continue
        found += [replace(quote, kind="viewed") for quote in reversed(quotes) if quote]
    return found


def _is_time(id: str) -> bool:
    return id.replace(".", "", 1).isdecimal()


def _of_others(page: Sequence[Json], message: Message, account: SlackAccount) -> list[Json]:
    """Return the messages before this one that others wrote; what Slack itself says, such as who joined, is none."""
    return [
        entry
        for entry in page
        if entry["ts"] != message.id
        and not (account.bot_id and entry.get("bot_id") == account.bot_id)
        and entry.get("user") != account.user_id
        and entry.get("subtype", "") in _SAID
    ]


async def _make_quote(workspace: Workspace, entry: Json, account: SlackAccount) -> Quote | None:
    text, _, _ = readable_text(visible_text(entry), account)
    files = ", ".join(file.get("name") or "a file" for file in entry.get("files") or ())
    content = "\n".join(piece for piece in (text, files and f"[{files}]") if piece)
    if not content:
        return None
    person = await workspace.find_person(entry.get("user") or "")
    name = person.name if person else entry.get("username") or entry.get("user") or "somebody"
    text = await workspace.with_names(content)
    author, is_member = str(entry.get("user") or ""), bool(person and person.is_member and has_own_words(entry))
    return Quote(name, text, "earlier", author, str(entry["ts"]), is_member)
