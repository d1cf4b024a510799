"""Rig of Telegram: a private chat, and a forum with its topics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from agent.messages import Message, Thread
from agent.setting import Secret
from channels import telegram
from tests.fakes.telegram import JANE, TOKEN, FakeTelegram, Shown
from tests.support.rigs.base import ABILITIES, Call
from tests.support.rigs.platform import FakeRig, FakeWire

FORUM = -1_001_000_000_001
GROUP = -100  # a small group, for tests of Telegram's own
METHODS: dict[Call, tuple[str, ...]] = {
    "post": ("sendMessage",),
    "edit": ("editMessageText",),
    "delete": ("deleteMessage",),
    "upload": ("sendDocument", "sendPhoto", "sendMediaGroup"),
    "album": ("sendMediaGroup",),
    "any": ("*",),
}


def telegram_thread(chat: int, topic: int = 0) -> Thread:
    return Thread("telegram", "123456", str(chat), str(topic or ""))


class TelegramWire(FakeWire):
    """The fake, in the terms of the contract."""

    def __init__(self, server: FakeTelegram) -> None:
        super().__init__(server, METHODS)
        self._calls = server.calls

    def where(self, topic: int) -> dict[str, Any]:
        return {"chat": FORUM if topic else JANE}

    def topics(self) -> set[int]:
        return {made.topic for made in self._calls if made.chat is not None}


class TelegramRig(FakeRig):
    """`tests.support.rigs.base.Rig` of Telegram."""

    name = "telegram"
    other = "77"
    # Bots get no deletions and cannot read the history; updates are kept for them, and posts have no idempotency key.
    can = frozenset(ABILITIES).difference(
        (
            "documents",
            "withdraw",
            "earlier",
            "catch_up",
            "follow_up",
            "socket",
            "once",
            "files_once",
            "handles",
            "local_times",
            "departures",
            "early_files",
        )
    )

    def __init__(self, server: FakeTelegram, settings: telegram.TelegramSettings) -> None:
        super().__init__(lambda: telegram.connect(settings))
        self.server = server
        self.wire = TelegramWire(server)
        self._said = 0  # the person's last message in the direct chat
        self._query = ""  # the last press

    @classmethod
    @asynccontextmanager
    async def start(cls, folder: Path, **settings: Any) -> AsyncIterator[Self]:
        async with FakeTelegram() as server:
            quick = {"poll_seconds": 5.0, "per_chat": 5.0, "per_group": 600.0}
            plain = telegram.TelegramSettings(token=Secret(TOKEN), base_url=server.base_url)
            async with cls(server, replace(plain, **{**quick, **settings})).running() as rig:
                yield rig

    def edits(self, chat: int = JANE) -> list[float]:
        """Return when the bot edited a text there."""
        return [call.at for call in self.server.calls_of("editMessageText", chat)]

    # ------------------------------------------------------------ people

    def chat(self, topic: int) -> int:
        """Return the chat of a topic; create it if needed."""
        if topic:
            self.server.forum(FORUM, topic).admin = True
            return FORUM
        return self.server.chat(JANE).id

    def mutter(self, text: str, topic: int = 0, *, mention: bool = False, by: str = "") -> None:
        message = self.server.send(
            f"@fawn_bot {text}" if topic and mention else text, chat=self.chat(topic), topic=topic, user=int(by or 0)
        )
        if not topic:
            self._said = message["message_id"]

    def redeliver(self) -> None:
        self.server.redeliver(self.server.latest)

    def send_file(self, name: str, data: bytes, caption: str = "") -> None:
        self.server.send_document(name, data, caption=caption)

    def amend(self, text: str) -> None:
        self.server.edit(text, self._said)

    def react(self, topic: int = 0) -> None:
        self.server.react("👎", self._shown(topic).id, chat=self.chat(topic))

    def rate(self, mark: str, topic: int = 0) -> None:
        self.server.react(mark, self._shown(topic).id, chat=self.chat(topic))

    def unrate(self, mark: str, topic: int = 0) -> None:
        self.server.react("", self._shown(topic).id, chat=self.chat(topic))

    async def begin_thread(self, text: str) -> Message:
        self.server.open_topic(text)
        return await self.box.next(len(self.box.messages) + 1)

    def title(self, thread: Thread) -> str:
        topics = self.server.chat(int(thread.chat)).topics
        return topics[int(thread.topic)] if topics else ""

    def retitle(self, thread: Thread, title: str) -> None:
        self.server.rename_topic(int(thread.topic), title)

    def erase(self, topic: int = 0) -> None:
        self.server.remove(self.chat(topic), self._shown(topic).id)

    def command(self, text: str) -> None:
        self.server.send(f"/{text}")

    def buttons(self, topic: int = 0) -> list[str]:
        return [label for label, _ in self._shown(topic).buttons]

    def offers(self, topic: int = 0) -> list[str]:
        shown = self.server.visible(self.chat(topic), topic)
        return [label for one in shown for label, _ in one.buttons]

    def danger(self, topic: int = 0) -> list[str]:
        return [label for label, style in self._shown(topic).styles if style == "danger"]

    def folded(self, topic: int = 0) -> list[str]:
        found = []
        for shown in self.server.visible(self.chat(topic), topic):
            units = shown.text.encode("utf-16-le")
            for entity in shown.entities:
                if entity["type"] == "expandable_blockquote":
                    begin, end = 2 * entity["offset"], 2 * (entity["offset"] + entity["length"])
                    found += units[begin:end].decode("utf-16-le").split("\n")
        return found

    def press(self, label: str, topic: int = 0, *, by: str = "") -> None:
        messages = reversed(self.server.visible(self.chat(topic), topic))
        data, shown = next((data, one.id) for one in messages for known, data in one.buttons if known == label)
        self._query = self.server.click(data, shown, chat=self.chat(topic), user=int(by or 0))

    def felt(self) -> bool:
        return not self._query or self._query in self.server.answers

    def thread(self, topic: int = 0) -> Thread:
        return telegram_thread(self.chat(topic), topic)

    def visible(self, topic: int = 0) -> list[str]:
        return [
            " ".join(filter(None, (shown.text, shown.file_name)))
            for shown in self.server.visible(self.chat(topic), topic)
        ]

    def pinged(self, topic: int = 0) -> Sequence[str]:
        return [person for shown in self.server.visible(self.chat(topic), topic) for person in shown.pings]

    def commands(self) -> list[str]:
        return [entry["command"] for entry in self.server.commands.get("default", [])]

    def _shown(self, topic: int) -> Shown:
        """The bot's last message."""
        return self.server.visible(self.chat(topic), topic)[-1]
