"""Send events into rooms, encrypted where the room is, and show what the bot does there."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import orjson

from agent.messages import Message, Thread
from catalogue import N_, _
from channels.base import Refused, TryLater
from channels.matrix.api import CLIENT, Json, MatrixApi, new_id
from channels.matrix.crypto import NotDecrypted
from channels.matrix.encryption import RoomEncryption
from channels.matrix.rooms import Room, Rooms
from channels.shared.caches import TypingActions
from channels.shared.visible_text import dict_of

TYPING_MS = 30_000
TYPING_SHOWS_SECONDS = 25.0
FIRST_SYNC_SECONDS = 10.0
MAX_EVENT_BYTES = 44_000  # of a content: encrypted it grows by a third, and an event has 65,536 bytes
ENCRYPTED = N_("The room is encrypted, and I have no keys: nothing is posted there.")


class EventSender:
    """Sends the events of one account."""

    def __init__(self, api: MatrixApi, rooms: Rooms) -> None:
        self._api = api
        self.rooms = rooms
        self.account = ""
        self.encryption: RoomEncryption | None = None
        self.synced = asyncio.Event()  # the rooms are known, and the keys
        self.typing = TypingActions(TYPING_SHOWS_SECONDS, self._type)

    async def room(self, id: str) -> Room:
        """Return a room of which it is known whether it is encrypted. Raises TryLater and ChatGone."""
        try:
            async with asyncio.timeout(FIRST_SYNC_SECONDS):
                await self.synced.wait()
        except TimeoutError:
            raise TryLater("Matrix is not connected yet") from None
        if id not in self.rooms.joined:
            path = f"{CLIENT}/rooms/{quote(id, safe='')}/state/m.room.member/{quote(self.account, safe='')}"
            await self._api.in_room(id, self._api.call("GET", path))  # raises ChatGone
            raise TryLater("Matrix has not described the room yet")
        return self.rooms.joined[id]

    async def prepare(self, room_id: str) -> None:
        """Wait until a post can go out at once: what is recorded of it counts as an attempt. Raises ChannelError."""
        room = await self.room(room_id)
        if room.encrypted and self.encryption:
            await self.encryption.prepare(room_id)

    async def send(self, room_id: str, kind: str, content: Json, transaction: str = "") -> str:
        """Send an event and return its id. Raises ChannelError; nothing goes open into an encrypted room."""
        room = await self.room(room_id)
        if room.encrypted:
            if self.encryption is None:
                raise Refused(_(ENCRYPTED))
            content = await self.encryption.encrypt(room_id, kind, content)
            kind = "m.room.encrypted"
        return await self._api.send_event(room_id, kind, content, transaction)

    async def react(self, room: str, event: str, mark: str) -> None:
        """Put a reaction on a message. Reactions are never encrypted."""
        content = {"m.relates_to": {"rel_type": "m.annotation", "event_id": event, "key": mark}}
        await self._api.send_event(room, "m.reaction", content, f"{event[1:20]}{mark.encode().hex()}")

    async def redact(self, room: str, event: str) -> None:
        await self._api.redact(room, event)

    async def fetch_content(self, room: str, event: str) -> Json | None:
        """Return the latest content of a message, as the server has it; None for one that was deleted."""
        found = await self._api.fetch_event(room, event)
        if "redacted_because" in dict_of(found.get("unsigned")):
            return None
        return self.latest_content(room, found)

    def latest_content(self, room: str, event: Json) -> Json:
        """Return the content of a message with the edit by its author that the server added."""
        edit = dict_of(dict_of(dict_of(event.get("unsigned")).get("m.relations")).get("m.replace"))
        new = self.opened(room, edit) if edit and edit.get("sender") == event.get("sender") else {}
        changed = dict_of(dict_of(new.get("content")).get("m.new_content"))
        return changed or dict_of(self.opened(room, event).get("content"))

    def opened(self, room: str, event: Json) -> Json:
        """Return an event as it was before its encryption, or as it is where it cannot be read."""
        if event.get("type") != "m.room.encrypted" or self.encryption is None:
            return event
        try:
            return self.encryption.machine.open_event(room, event)
        except NotDecrypted:
            return event

    async def show_work(self, message: Message) -> None:
        """Show that a message was read and is worked on."""
        room = quote(message.thread.chat, safe="")
        topic = message.thread.topic
        body = {"thread_id": topic if topic and topic != message.id else "main"}
        path = f"{CLIENT}/rooms/{room}/receipt/m.read/{quote(message.id, safe='')}"
        await self.typing.show(message.thread.chat)
        await self._api.call("POST", path, body, repeatable=True)

    async def _type(self, room: str) -> None:
        path = f"{CLIENT}/rooms/{quote(room, safe='')}/typing/{quote(self.account, safe='')}"
        await self._api.call("PUT", path, {"typing": True, "timeout": TYPING_MS}, repeatable=True)

    async def post_notice(self, thread: Thread, text: str) -> None:
        """Post a text that belongs to no reply."""
        content = {"msgtype": "m.text", "body": text, "m.mentions": {}, **thread_relation(thread)}
        await self.send(thread.chat, "m.room.message", content, new_id())


def thread_relation(thread: Thread, to: str = "") -> Json:
    """Return what puts a message into a thread, and for clients without threads below the message that it answers."""
    if not thread.topic:
        return {}
    replied = {"event_id": to if to.startswith("$") else thread.topic}
    relation = {"rel_type": "m.thread", "event_id": thread.topic, "is_falling_back": True, "m.in_reply_to": replied}
    return {"m.relates_to": relation}


def fits(content: Json) -> bool:
    """Return whether a content fits into an event, also encrypted."""
    return len(orjson.dumps(content)) <= MAX_EVENT_BYTES
