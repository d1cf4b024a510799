"""Read what stands above a message: of its thread or room, and what it replies to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from urllib.parse import quote

from agent.messages import Kind, Message, Quote, omitted
from channels.matrix.api import CLIENT, Json, MatrixApi, MatrixNotFound
from channels.matrix.events import server_of, time_of
from channels.matrix.sender import EventSender
from channels.shared.robot_chats import MAX_QUOTE_CHARS
from channels.shared.visible_text import dict_of, dicts_in, text_of

MAX_READ = 100  # events, to find the last ones of others


async def earlier_messages(
    api: MatrixApi, sender: EventSender, message: Message, limit: int, since: float
) -> list[Quote]:
    """Return the last messages of others above it, oldest first, in a thread with its root. Raises ChannelError."""
    if message.private or limit < 1 or message.kind is not Kind.CHAT:
        return []
    room, topic, root = message.thread.chat, message.thread.topic, list[Json]()
    path = f"/rooms/{quote(room, safe='')}"
    try:
        if topic and topic != message.id:
            url = f"/_matrix/client/v1{path}/relations/{quote(topic, safe='')}/m.thread"
            found = await api.call("GET", url, limit=str(MAX_READ), dir="b")
            events = [*dicts_in(found.get("chunk"))]
            at = next((at for at, each in enumerate(events) if each.get("event_id") == message.id), -1)
            events, root = events[at + 1 :], [await api.fetch_event(room, topic)]
        else:
            url = f"{CLIENT}{path}/context/{quote(message.id, safe='')}"
            found = await api.call("GET", url, limit=str(MAX_READ))
            events = [each for each in dicts_in(found.get("events_before")) if not _is_in_thread(each)]
    except MatrixNotFound:
        return []
    above, quotes = [await _quotes_of_others(read, room, sender, since) for read in (root, events)]
    is_counted = "next_batch" not in found
    left_out = max(0, len(quotes) - limit) if is_counted else 1
    gap = [omitted(left_out if is_counted else None)] if root and left_out else []
    return [*above, *gap, *quotes[:limit][::-1]]


async def _quotes_of_others(events: Sequence[Json], room: str, sender: EventSender, since: float) -> list[Quote]:
    return [
        quoted
        for event in events
        if event.get("sender") != sender.account and time_of(event) > since
        if (quoted := await _make_quote(event, room, sender, "earlier"))
    ]


async def replied_message(api: MatrixApi, sender: EventSender, message: Message) -> list[Quote]:
    """Return the message of another person to which it replies. Raises ChannelError."""
    if not message.reply_to.startswith("$") or message.to_bot or message.kind is not Kind.CHAT:
        return []
    try:
        event = await api.fetch_event(message.thread.chat, message.reply_to)
    except MatrixNotFound:
        return [Quote("", "", "unread")]
    quoted = await _make_quote(event, message.thread.chat, sender, "reply")
    return [quoted] if quoted else []


def _is_in_thread(event: Json) -> bool:
    return dict_of(dict_of(event.get("content")).get("m.relates_to")).get("rel_type") in ("m.thread", "m.replace")


async def _make_quote(event: Json, room: str, sender: EventSender, kind: Literal["earlier", "reply"]) -> Quote | None:
    content = sender.latest_content(room, event)
    if sender.opened(room, event).get("type") != "m.room.message" or "state_key" in event:
        return None
    text, person = text_of(content.get("body"))[:MAX_QUOTE_CHARS], text_of(event.get("sender"))
    if not text:
        return None
    name = sender.rooms.room(room).names.get(person) or person[1:].partition(":")[0]
    is_member = server_of(person) == server_of(sender.account) and content.get("msgtype") != "m.notice"
    return Quote(name, text, kind, person, text_of(event.get("event_id")), is_member)
