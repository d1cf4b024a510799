"""Rig of Matrix: a real homeserver, a direct chat, and a room with threads."""

from __future__ import annotations

import io
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from agent.messages import Thread
from agent.setting import Secret
from channels import matrix
from channels.matrix.files import SealedFile
from tests.support.encrypting_person import ENCRYPTION, EncryptingPerson
from tests.support.matrix_proxy import MatrixProxy
from tests.support.rigs.base import Call
from tests.support.rigs.platform import FakeRig, PlacedWire
from tests.support.synapse import C, Json, Person, shared_synapse

METHODS: dict[Call, tuple[str, ...]] = {
    "post": ("post",),
    "edit": ("edit",),
    "delete": ("delete",),
    "upload": ("file",),
    "album": ("file",),
    "any": ("*",),
}
BOT_NAME = "Fawn"


class Folded(HTMLParser):
    """The lines of what a reader unfolds."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._open = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in ("details", "sub"):
            self._open = True
            self.lines.append("")
        elif tag == "br" and self._open:
            self.lines.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "summary":
            self.lines.append("")
        elif tag in ("details", "sub"):
            self._open = False

    def handle_data(self, data: str) -> None:
        if self._open:
            self.lines[-1] += data


class MatrixRig(FakeRig):
    """`tests.support.rigs.base.Rig` of Matrix."""

    name = "matrix"
    # There are no buttons, native commands and titles of threads. The server keeps events; a repeated transaction is
    # one event.
    can = frozenset(
        {
            "live", "working", "edits", "kept", "topics", "follow_up", "folds", "uploads", "downloads", "captions",
            "amend", "withdraw", "reactions", "private_chats", "erase", "missing", "earlier", "mentions", "once",
            "files_once", "retry_after", "wire", "tokens", "apology",
        }
    )  # fmt: skip

    person = Person
    room_state: Sequence[Json] = ()

    def __init__(
        self, proxy: MatrixProxy, settings: matrix.MatrixSettings, people: Sequence[Person], bot: Person
    ) -> None:
        super().__init__(lambda: matrix.connect(settings))
        self.proxy = proxy
        self.wire = PlacedWire(proxy, METHODS)
        self.jane, self.kim = people
        self.other = self.kim.id
        self.bot, self.token = bot.id, bot.token
        self.roots: dict[int, str] = {}
        self.direct = self.group = ""
        self._said = ""  # the person's last message in the direct chat
        self._rating = ""

    @classmethod
    @asynccontextmanager
    async def start(cls, folder: Path, **settings: Any) -> AsyncIterator[Self]:
        async with cls.with_people(**settings) as rig, rig.running():
            yield rig

    @classmethod
    @asynccontextmanager
    async def with_people(cls, **settings: Any) -> AsyncIterator[Self]:
        """Make the accounts and rooms, without a channel."""
        server, tag = shared_synapse(), secrets.token_hex(4)
        jane, kim = (cls.person(server.url, server.register(f"{name}{tag}")) for name in ("jane", "kim"))
        bot = Person(server.url, server.register(f"bot{tag}"))
        bot.call("PUT", f"{C}/profile/{quote(bot.id)}/displayname", {"displayname": BOT_NAME})
        jane.call("PUT", f"{C}/profile/{quote(jane.id)}/displayname", {"displayname": "Jane"})
        async with MatrixProxy(server.url) as proxy:
            quick = {"poll_seconds": 5.0, "key_seconds": 2.0, "per_reply": 5.0, "overall": 1000.0, "burst": 1000}
            plain = matrix.MatrixSettings(homeserver=proxy.base_url, token=Secret(bot.token))
            rig = cls(proxy, replace(plain, **{**quick, **settings}), (jane, kim), bot)
            rig.open_rooms(bot)
            try:
                yield rig
            finally:
                for person in (jane, kim, bot):
                    person.close()

    def open_rooms(self, bot: Person) -> None:
        """Make the direct chat and the room, in which everybody is when the bot starts."""
        state = [*self.room_state]
        self.direct = self.jane.create_room(bot.id, direct=True, initial_state=state)
        self.group = self.jane.create_room(bot.id, self.kim.id, name="Team", initial_state=state)
        for room in (self.direct, self.group):
            bot.join(room)
        self.kim.join(self.group)
        self.proxy.places[self.direct, ""] = 0
        self.jane.sync()

    # ------------------------------------------------------------ people

    def _root(self, topic: int) -> str:
        """Return the first message of a thread; Jane writes it if nobody has."""
        if topic not in self.roots:
            self._begin(topic, self.jane.send(self.group, {"msgtype": "m.text", "body": f"topic {topic}"}))
        return self.roots[topic]

    def _begin(self, topic: int, event: str) -> None:
        self.roots[topic] = event
        self.proxy.places[self.group, event] = topic

    def mutter(self, text: str, topic: int = 0, *, mention: bool = False, by: str = "") -> None:
        content: Json = {"msgtype": "m.text", "body": text, "m.mentions": {}}
        if topic and mention:
            content |= {"body": f"{BOT_NAME}: {text}", "m.mentions": {"user_ids": [self.bot]}}
        if not topic:
            self._said = self.jane.send(self.direct, content)
            return
        if topic in self.roots:
            root = self.roots[topic]
            content["m.relates_to"] = {
                "rel_type": "m.thread", "event_id": root, "is_falling_back": True, "m.in_reply_to": {"event_id": root},
            }  # fmt: skip
        event = (self.kim if by else self.jane).send(self.group, content)
        if topic not in self.roots:
            self._begin(topic, event)

    def send_file(self, name: str, data: bytes, caption: str = "") -> None:
        content = {
            "msgtype": "m.file", "body": caption or name, "filename": name, "url": self.jane.upload(data, name),
            "info": {"size": len(data), "mimetype": "application/octet-stream"},
        }  # fmt: skip
        self.jane.send(self.direct, content)

    def amend(self, text: str) -> None:
        new = {"msgtype": "m.text", "body": text, "m.mentions": {}}
        relation = {"rel_type": "m.replace", "event_id": self._said}
        self.jane.send(self.direct, {**new, "body": f"* {text}", "m.new_content": new, "m.relates_to": relation})

    def withdraw(self) -> None:
        self.jane.redact(self.direct, self._said)

    def react(self, topic: int = 0) -> None:
        self._react("❌", topic)

    def rate(self, mark: str, topic: int = 0) -> None:
        self._rating = self._react(mark, topic)

    def unrate(self, mark: str, topic: int = 0) -> None:
        self.jane.redact(self._room(topic), self._rating)

    def erase(self, topic: int = 0) -> None:
        self.jane.redact(self._room(topic), self._shown(topic)[-1]["id"])

    def _react(self, mark: str, topic: int) -> str:
        relation = {"rel_type": "m.annotation", "event_id": self._shown(topic)[-1]["id"], "key": mark}
        return self.jane.send(self._room(topic), {"m.relates_to": relation}, "m.reaction")

    def _room(self, topic: int) -> str:
        return self.group if topic else self.direct

    def _shown(self, topic: int) -> list[Json]:
        return self.jane.visible(self._room(topic), self.bot, self._root(topic) if topic else "")

    def buttons(self, topic: int = 0) -> list[str]:
        """Matrix has no buttons: the options are numbered lines, with a reaction for each."""
        return []

    def folded(self, topic: int = 0) -> list[str]:
        reader = Folded()
        for shown in self._shown(topic):
            reader.feed(shown["content"].get("formatted_body", ""))
        return reader.lines

    def thread(self, topic: int = 0) -> Thread:
        return Thread("matrix", self.bot, self._room(topic), self._root(topic) if topic else "")

    def visible(self, topic: int = 0) -> list[str]:
        """Return texts, and captions with the names of files."""
        found = [shown["content"] for shown in self._shown(topic)]
        return [" ".join(dict.fromkeys(filter(None, (c["body"], c.get("filename"))))) for c in found]

    def pinged(self, topic: int = 0) -> Sequence[str]:
        return [
            person
            for shown in self._shown(topic)
            for person in shown["content"].get("m.mentions", {}).get("user_ids", ())
        ]


class EncryptedMatrixRig(MatrixRig):
    """The same in encrypted rooms. While nothing can be stored, nothing is said there: its keys would not be kept."""

    can = MatrixRig.can - {"apology"}

    person = EncryptingPerson
    room_state = (ENCRYPTION,)

    def send_file(self, name: str, data: bytes, caption: str = "") -> None:
        sealed = SealedFile(io.BytesIO(data))
        content = b"".join(sealed.pieces())
        file = sealed.description(self.jane.upload(content))
        info = {"size": len(data), "mimetype": "application/octet-stream"}
        message = {"msgtype": "m.file", "body": caption or name, "filename": name, "file": file, "info": info}
        self.jane.send(self.direct, message)
