"""Rig of the channel `web`: a program that speaks for a person, over a real listener, and repeats what was not stored.

The channel posts notices of the bot and files; a run's own reply is read from its feed and its transcript (the tests of
the API). So each reply of the contract is a notice here.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import aiohttp

from agent.messages import Author, Message, Origin, Thread, Unreadable
from bot.api.endpoints import Endpoints
from bot.api.shared.keys import make_key_of
from bot.base.stored_files import WebFiles
from bot.commands.feature import Door
from bot.config.http import HttpConfig
from bot.config.schema import AccessConfig, ChannelConfig, Config
from bot.database.database import Database, Execute
from bot.http.listener import listening
from bot.main.web_channel import WebChannel, WebReply
from bot.rights.current import Current
from bot.storage import conversations, inbox, people
from bot.storage.inbox import InboxRow
from channels.base import Channel, Receipt, SentMessage, SentMessages
from tests.support.rehearsed_database import make_empty_database, rehearsed_database
from tests.support.rigs.base import Wire
from tests.support.rigs.platform import FakeRig

THREAD = Thread("web", "", "telegram:7", "contract")


class AsNotice:
    """What was sent of a reply, under the key of a notice."""

    def __init__(self, posts: SentMessages) -> None:
        self.key = f"notice-{posts.key}"
        self._posts = posts

    @property
    def known(self) -> Sequence[SentMessage]:
        return self._posts.known

    @property
    def reply_handle(self) -> str:
        return self._posts.reply_handle

    async def sending(self, index: int, handle: str = "") -> None:
        await self._posts.sending(index, handle)

    async def sent(self, index: int, message_id: str) -> None:
        await self._posts.sent(index, message_id)

    async def adopt(self, index: int, candidates: Sequence[str]) -> str | None:
        return await self._posts.adopt(index, candidates)

    async def unsent(self, index: int) -> None:
        await self._posts.unsent(index)

    async def found_deleted(self, index: int) -> None:
        await self._posts.found_deleted(index)

    async def record_questions(self, questions: Mapping[int, str]) -> None:
        await self._posts.record_questions(questions)


class NoticeChannel(WebChannel):
    """The channel, whose replies are all notices."""

    def reply(self, thread: Thread, posts: SentMessages, *, to: str = "", asker: str = "") -> WebReply:
        return super().reply(thread, AsNotice(posts), to=to, asker=asker)


class WebRig(FakeRig):
    """`tests.support.rigs.base.Rig` of the API. `lacks` has what every other channel has."""

    name = "web"
    other = ""
    can = frozenset(["redelivery", "once", "uploads"])
    lacks = frozenset(["prefix"])

    def __init__(self, store: Database, folder: Path) -> None:
        super().__init__(self._connect_web)
        self._store, self._folder = store, folder
        self._client = aiohttp.ClientSession()
        self._key, self._address = "", ""
        self._posted: list[tuple[str, str]] = []
        self._queue: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    @property
    def wire(self) -> Wire:
        raise NotImplementedError("the service itself is the server")

    @classmethod
    @asynccontextmanager
    async def start(cls, folder: Path, **settings: Any) -> AsyncIterator[Self]:
        make_empty_database(folder / "fawn.db")
        async with rehearsed_database(folder / "fawn.db") as store:
            rig = cls(store, folder)
            await store.run(rig._meet)
            rig._key, _row = await store.run(partial(_make_key, name=uuid4().hex))
            sending = asyncio.create_task(rig._send_all(), name="program")
            try:
                async with rig.running():
                    yield rig
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
                await rig._client.close()

    @staticmethod
    def _meet(execute: Execute) -> None:
        """Jane wrote to the bot on her own platform."""
        chat, author = Thread("telegram", "", "7"), Author("7", "Jane")
        hello = Message(chat, "1", "1", author, "hi", time.time(), private=True, origin=Origin.PERSON)
        people.store_address(execute, hello)

    @asynccontextmanager
    async def _connect_web(self) -> AsyncIterator[Channel]:
        config = Config(channels=(ChannelConfig("telegram", None, AccessConfig(open=True)),))
        door = Door(self._store, Current(config), self._receive, self._receive_one, *[None] * 6)  # type: ignore[arg-type]  # no more is used
        routes = Endpoints(door, WebFiles(self._folder)).routes()
        async with listening(HttpConfig(listen="127.0.0.1:0"), routes) as self._address:
            yield NoticeChannel(self._store, self._folder)

    async def _receive(self, batch: Sequence[Message | Unreadable]) -> list[Receipt]:
        """Store what the box takes, as the inbox does."""
        receipts = await self.box.receive(batch)
        for message, receipt in zip(batch, receipts, strict=True):
            if isinstance(message, Message) and receipt is Receipt.ACCEPTED:
                await self._store.run(partial(_store_message, message=message))
        return receipts

    async def _receive_one(self, message: Message) -> tuple[Receipt, InboxRow | None]:
        [receipt] = await self._receive([message])
        return receipt, await self._store.run(partial(inbox.find_message, key=message.key))

    async def _send_all(self) -> None:
        while True:
            self._posted.append(await self._queue.get())
            await self._post(*self._posted[-1])

    async def _post(self, text: str, key: str) -> None:
        """Send a message until it is stored, always under the same Idempotency-Key."""
        headers = {"Authorization": f"Bearer {self._key}", "Idempotency-Key": key}
        path = f"{self._address}/v1/threads/{THREAD.topic}/messages"
        while True:
            async with self._client.post(path, json={"text": text}, headers=headers) as answer:
                assert answer.status in (202, 403, 503), await answer.text()
                if answer.status != 503:
                    return
            await asyncio.sleep(0.02)

    # ------------------------------------------------------------ people

    def mutter(self, text: str, topic: int = 0, *, mention: bool = False, by: str = "") -> None:
        self._queue.put_nowait((text, uuid4().hex))

    def redeliver(self) -> None:
        self._queue.put_nowait(self._posted[-1])

    def thread(self, topic: int = 0) -> Thread:
        return THREAD

    def visible(self, topic: int = 0) -> list[str]:
        """Return what a program shows: each entry, and the options of its questions."""
        with closing(sqlite3.connect(self._folder / "fawn.db")) as reader:
            rows = reader.execute("SELECT text, asks FROM transcript ORDER BY id").fetchall()
        options = [option for _text, asks in rows for ask in json.loads(asks or "[]") for option in ask["options"]]
        return [*(text for text, _asks in rows), *options]


def _make_key(execute: Execute, name: str) -> tuple[str, object]:
    return make_key_of(execute, name, "telegram", "7", "threads", "")


def _store_message(execute: Execute, message: Message) -> None:
    now = time.time()
    conversation = conversations.current_conversation(execute, message.thread, now)
    inbox.store_message(execute, message, conversation, ready=now, received=now)
