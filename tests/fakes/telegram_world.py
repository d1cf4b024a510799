"""The state of the fake Telegram: people, chats, messages as people see them, files, and the queue of updates."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from tests.fakes.server import Json
from tests.fakes.telegram_text import RichHtml

TOKEN = "123456:TEST-TOKEN"
BOT: Json = {
    "id": 123456,
    "is_bot": True,
    "first_name": "Fawn",
    "username": "fawn_bot",
    "can_join_groups": True,
    "can_read_all_group_messages": True,
    "supports_inline_queries": False,
    "can_connect_to_business": False,
    "has_main_web_app": False,
}
JANE = 42  # the default author


@dataclass(slots=True)
class StoredFile:
    """A file on the platform. `size` may be larger than `data`: a 21 MB document need not exist to be refused."""

    path: str
    name: str
    data: bytes
    size: int
    mime: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A message as people see it now. `topic` is the forum topic (0: none), `file` the bytes of what it carries."""

    id: int
    text: str  # the text or the caption
    by_bot: bool
    topic: int = 0
    kind: str = "text"
    file_name: str = ""
    file: bytes = b""
    entities: tuple[Json, ...] = ()
    styles: tuple[tuple[str, str], ...] = ()  # of the buttons, by label
    buttons: tuple[tuple[str, str], ...] = ()  # (label, callback data)
    reply_to: int = 0
    edits: int = 0
    album: str = ""
    pings: tuple[str, ...] = ()  # the people (user ids) whom a mention in it notified


@dataclass(slots=True)
class Chat:
    """A chat and every message in it, in order; deleted ones are gone."""

    id: int
    kind: Literal["private", "group", "supergroup"]
    title: str = ""
    topics: dict[int, str] | None = None  # a forum's topics, None if the chat is not a forum
    messages: dict[int, Json] = field(default_factory=dict)
    rich: dict[int, RichHtml] = field(default_factory=dict)  # rich messages, by their ids
    edits: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    admin: bool = False  # the bot is an administrator there, so it gets reactions
    blocked: bool = False  # the person blocked the bot, or the group removed it
    moved_to: int = 0  # the supergroup that this group became
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))  # every chat counts its own


def said_in(message: Json) -> str:
    """The text or the caption of a message."""
    return message.get("text") or message.get("caption") or ""


class World:
    """What has happened. Thread-safe as far as tests need it: one statement a change."""

    def __init__(self) -> None:
        self.chats: dict[int, Chat] = {}
        self.people: dict[int, Json] = {}
        self.files: dict[str, StoredFile] = {}
        self.updates: dict[int, Json] = {}  # not yet confirmed
        self.confirmed = 0  # the highest confirmed update id
        self.again: list[Json] = []  # redelivered with the next poll whatever its offset
        self.queries: dict[str, Json] = {}  # callback queries not yet answered
        self.answers: dict[str, str] = {}  # …and what was answered
        self.reactions: dict[tuple[int, int], list[str]] = {}
        self.given: dict[tuple[int, int, int], str] = {}  # (chat, message, person) → their reaction
        self.drafts: dict[tuple[int, int], str] = {}  # (chat, topic) → what the bot's draft shows
        self.stoppable: dict[tuple[int, int], int] = {}  # …and its id, where it has a stop button
        self.knows_rich = True  # the server has Bot API 10.1
        self.commands: dict[str, list[Json]] = {}  # scope type → setMyCommands
        self.pushed: dict[int, float] = {}  # update id → time.monotonic() when it came up
        self.latest: Json = {}  # the last update that came up
        self._update_ids = itertools.count(1000)
        self._first_message = 1  # of each chat

    def go_on_after(self, others: int) -> None:
        """Count as if there had been so many updates, and messages in each chat, before this server's."""
        self._update_ids = itertools.count(1000 + others)
        self._first_message = 1 + others

    def wake(self) -> None:
        """Called after every push: a waiting poll should look again."""

    # ------------------------------------------------------------ people and chats

    def person(self, user: int = JANE, first_name: str = "", username: str = "") -> Json:
        """The User object; a new person is made up."""
        if user not in self.people:
            name = first_name or ("Jane" if user == JANE else f"User{user}")
            self.people[user] = {
                "id": user,
                "is_bot": False,
                "first_name": name,
                "username": username or name.lower(),
                "language_code": "en",
            }
        return self.people[user]

    def chat(self, chat_id: int) -> Chat:
        """The chat, made when it is new: positive ids are private, -100… supergroups, other negative ids groups."""
        if chat_id not in self.chats:
            kind: Literal["private", "group", "supergroup"] = "private"
            if chat_id < 0:
                kind = "supergroup" if chat_id < -1_000_000_000_000 else "group"
            title = "" if chat_id > 0 else f"Team {-chat_id}"
            self.chats[chat_id] = Chat(chat_id, kind, title, ids=itertools.count(self._first_message))
        return self.chats[chat_id]

    def forum(self, chat_id: int, *topics: int) -> Chat:
        """A supergroup with forum topics. Topic 1 (General) is always there and needs no naming."""
        chat = self.chat(chat_id)
        chat.topics = {**(chat.topics or {}), **{topic: f"Topic {topic}" for topic in topics}}
        return chat

    def delete_topic(self, chat_id: int, topic: int) -> None:
        """A topic is deleted, its messages with it."""
        chat = self.chat(chat_id)
        assert chat.topics
        del chat.topics[topic]
        for message_id in [i for i, m in chat.messages.items() if m.get("message_thread_id") == topic]:
            del chat.messages[message_id]

    def block(self, chat_id: int, blocked: bool = True) -> None:
        """The person blocks the bot, or a group removes it."""
        self.chat(chat_id).blocked = blocked

    def chat_object(self, chat: Chat) -> Json:
        """The Chat object as messages carry it."""
        if chat.kind == "private":
            person = self.person(chat.id)
            return {
                "id": chat.id,
                "type": "private",
                "first_name": person["first_name"],
                "username": person["username"],
            }
        forum = {"is_forum": True} if chat.topics is not None else {}
        return {"id": chat.id, "type": chat.kind, "title": chat.title, **forum}

    # ------------------------------------------------------------ messages and files

    def post(self, chat: Chat, author: Json, content: Json, topic: int = 0) -> Json:
        """Add a message to a chat; returns the Message object."""
        message: Json = {
            "message_id": next(chat.ids),
            "from": author,
            "chat": self.chat_object(chat),
            "date": int(time.time()),
        }
        if topic and topic != 1:  # the General topic leaves no mark on a message
            message |= {"message_thread_id": topic, "is_topic_message": True}
        message |= content
        chat.messages[message["message_id"]] = message
        return message

    def keep(self, name: str, data: bytes, mime: str = "application/octet-stream", size: int = 0) -> Json:
        """Store a file; returns the fields that every kind of file object has."""
        file_id = f"FILE{len(self.files)}"
        folder = mime.split("/")[0]
        self.files[file_id] = StoredFile(f"{folder}/{file_id}", name, data, size or len(data), mime)
        return {"file_id": file_id, "file_unique_id": f"u{file_id}", "file_size": size or len(data)}

    def remove(self, chat: int, message_id: int) -> None:
        """A person deletes a message (bots get no update)."""
        del self.chat(chat).messages[message_id]

    def visible(self, chat: int, topic: int | None = None, everybody: bool = False) -> list[Shown]:
        """The bot's messages in a chat (or one of its topics) in order, edits applied, deleted ones gone."""
        known = self.chat(chat)
        return [
            self._shown(known, message)
            for message in list(known.messages.values())
            if (everybody or message["from"]["is_bot"])
            and (topic is None or message.get("message_thread_id", 0) in ({0, 1} if topic in (0, 1) else {topic}))
        ]

    def texts(self, chat: int, topic: int | None = None) -> list[str]:
        """The texts of the bot's visible messages."""
        return [shown.text for shown in self.visible(chat, topic)]

    def _shown(self, chat: Chat, message: Json) -> Shown:
        kind = next((k for k in ("document", "photo", "audio", "video", "voice") if k in message), "text")
        carried = message.get(kind) or {}
        if isinstance(carried, list):  # a photo is a list of sizes
            carried = carried[-1]
        file = self.files.get(carried.get("file_id", "")) if kind != "text" else None
        entities = message.get("entities") or message.get("caption_entities") or ()
        keyboard = message.get("reply_markup", {}).get("inline_keyboard", [])
        rich = chat.rich.get(message["message_id"])
        return Shown(
            id=message["message_id"],
            text=rich.text if rich else said_in(message),
            by_bot=message["from"]["is_bot"],
            topic=message.get("message_thread_id", 0),
            kind=kind,
            file_name=file.name if file else "",
            file=file.data if file else b"",
            entities=tuple(entities),
            styles=tuple((b["text"], b.get("style", "")) for row in keyboard for b in row),
            buttons=tuple((b["text"], b.get("callback_data", "")) for row in keyboard for b in row),
            reply_to=message.get("reply_to_message", {}).get("message_id", 0),
            edits=chat.edits[message["message_id"]],
            album=message.get("media_group_id", ""),
            pings=tuple(self._pings(chat, said_in(message), entities) if not rich else self._rich_pings(chat, rich)),
        )

    def _rich_pings(self, chat: Chat, rich: RichHtml) -> Iterator[str]:
        """Return whom a rich message notifies: ids of links, and user names."""
        names = {str(person["username"]).lower(): str(user) for user, person in self.people.items()}
        for who in rich.mentioned if chat.kind != "private" else ():
            if who.isdecimal() or who.lower() in names:
                yield names.get(who.lower(), who)

    def _pings(self, chat: Chat, text: str, entities: Iterable[Json]) -> Iterator[str]:
        """Return whom the mentions of a message notify: nobody in a private chat."""
        names = {str(person["username"]).lower(): str(user) for user, person in self.people.items()}
        for entity in entities if chat.kind != "private" else ():
            if entity["type"] == "text_mention":
                yield str(entity["user"]["id"])
            elif entity["type"] == "mention":
                units = text.encode("utf-16-le")[2 * entity["offset"] : 2 * (entity["offset"] + entity["length"])]
                name = units.decode("utf-16-le").removeprefix("@").lower()
                if name in names:
                    yield names[name]

    # ------------------------------------------------------------ the queue of updates

    def push(self, kind: str, content: Json) -> int:
        """Add an update to the queue; returns its id."""
        update_id = next(self._update_ids)
        self.pushed[update_id] = time.monotonic()
        self.updates[update_id] = self.latest = {"update_id": update_id, kind: dict(content)}
        self.wake()
        return update_id

    def poison(self, content: Json | None = None) -> int:
        """An update that no SDK can parse (a message without its date, unless `content` says otherwise)."""
        return self.push("message", content if content is not None else {"message_id": 1})

    def redeliver(self, update: Json, times: int = 1) -> None:
        """Give an update once more with the same id, whatever was confirmed."""
        self.again.extend([update] * times)
        self.wake()
