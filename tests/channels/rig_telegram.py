"""Telegram on its fake: a private chat as the direct one, a forum of a supergroup with its topics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, Unpack

from agent.conversation import Message, Secret, Thread
from channels import telegram
from channels.base import Channel
from tests.channels.box import Box, Service
from tests.channels.rig import Call, Rule, Trouble
from tests.fakes.telegram import JANE, TOKEN, FakeTelegram, Shown

FORUM = -1_001_000_000_001
GROUP = -100  # a small group, for tests of Telegram's own
METHODS: dict[Call, tuple[str, ...]] = {
    "post": ("sendMessage",),
    "edit": ("editMessageText",),
    "delete": ("deleteMessage",),
    "upload": ("sendDocument", "sendPhoto"),
    "any": ("*",),
}


def telegram_thread(chat: int, topic: int = 0) -> Thread:
    return Thread("telegram", "123456", str(chat), str(topic or ""))


class TelegramWire:
    """`tests.channels.rig.Wire` over the fake."""

    def __init__(self, server: FakeTelegram) -> None:
        self._server = server

    def fault(self, kind: Trouble, call: Call, *, topic: int | None = None, **rule: Unpack[Rule]) -> None:
        chat = None if topic is None else FORUM if topic else JANE
        for method in METHODS[call]:
            self._server.fault(kind, method, chat=chat, **rule)

    def count(self, call: Call) -> int:
        return sum(len(self._server.calls_of(method.strip("*"))) for method in METHODS[call])

    def topics(self) -> set[int]:
        return {made.topic for made in self._server.calls if made.chat is not None}

    async def stop(self) -> None:
        await self._server.stop()

    async def start(self) -> None:
        await self._server.start(self._server.port)

    def abort(self) -> None:
        """Updates are polled."""

    def deafen(self) -> None:
        """Updates are polled."""


class TelegramRig:
    """`tests.channels.rig.Rig` of Telegram."""

    name = "telegram"
    can = frozenset(
        [
            "edits",
            "redelivery",
            "kept",
            "topics",
            "buttons",
            "uploads",
            "downloads",
            "amend",
            "reactions",
            "native",
            "menu",
        ]
    ) | {"captions", "mentions", "wire", "apology"}

    def __init__(self, server: FakeTelegram, settings: telegram.Settings) -> None:
        self.server = server
        self.box = Box()
        self.wire = TelegramWire(server)
        self._service = Service(lambda: telegram.connect(settings), self.box)
        self._said = 0  # the person's last message in the direct chat
        self._query = ""  # the last press

    @property
    def channel(self) -> Channel:
        return self._service.channel

    @classmethod
    @asynccontextmanager
    async def start(cls, folder: Path, **settings: Any) -> AsyncIterator[Self]:
        async with FakeTelegram() as server:
            quick = {"poll_seconds": 5.0, "per_chat": 5.0, "per_group": 600.0}
            plain = telegram.Settings(token=Secret(TOKEN), base_url=server.base_url)
            rig = cls(server, replace(plain, **{**quick, **settings}))
            await rig.back()
            try:
                yield rig
            finally:
                await rig.leave()

    async def leave(self) -> None:
        await self._service.end()

    async def back(self) -> None:
        await self._service.begin()

    def edits(self, chat: int = JANE) -> list[float]:
        """When the bot edited a text there."""
        return [call.at for call in self.server.calls_of("editMessageText", chat)]

    # ------------------------------------------------------------ people

    def chat(self, topic: int) -> int:
        """The chat in which a topic is, made when it is new."""
        if topic:
            self.server.forum(FORUM, topic).admin = True
            return FORUM
        return self.server.chat(JANE).id

    async def say(self, text: str, topic: int = 0, *, mention: bool = True) -> Message:
        count = len(self.box.messages)
        self.mutter(text, topic, mention=mention)
        return await self.box.next(count + 1)

    def mutter(self, text: str, topic: int = 0, *, mention: bool = False) -> None:
        message = self.server.send(
            f"@fawn_bot {text}" if topic and mention else text, chat=self.chat(topic), topic=topic
        )
        if not topic:
            self._said = message["message_id"]

    def redeliver(self) -> None:
        self.server.redeliver(self.server.latest)

    def send_file(self, name: str, data: bytes, caption: str = "") -> None:
        self.server.send_document(name, data, caption=caption)

    def amend(self, text: str) -> None:
        self.server.edit(text, self._said)

    def withdraw(self) -> None:
        """Bots are not told."""

    def react(self, topic: int = 0) -> None:
        self.server.react("👎", self._shown(topic).id, chat=self.chat(topic))

    def command(self, text: str) -> None:
        self.server.send(f"/{text}")

    def buttons(self, topic: int = 0) -> list[str]:
        return [label for label, _ in self._shown(topic).buttons]

    def press(self, label: str, topic: int = 0) -> None:
        shown = self._shown(topic)
        data = next(data for known, data in shown.buttons if known == label)
        self._query = self.server.click(data, shown.id, chat=self.chat(topic))

    def felt(self) -> bool:
        return not self._query or self._query in self.server.answers

    def thread(self, topic: int = 0) -> Thread:
        return telegram_thread(self.chat(topic), topic)

    def visible(self, topic: int = 0) -> list[str]:
        return [f"{shown.text}{shown.file_name}" for shown in self.server.visible(self.chat(topic), topic)]

    def pinged(self, topic: int = 0) -> Sequence[str]:
        return [person for shown in self.server.visible(self.chat(topic), topic) for person in shown.pings]

    def commands(self) -> list[str]:
        return [entry["command"] for entry in self.server.commands.get("default", [])]

    def _shown(self, topic: int) -> Shown:
        """The bot's last message."""
        return self.server.visible(self.chat(topic), topic)[-1]
