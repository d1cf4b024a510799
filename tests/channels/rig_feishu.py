"""Feishu on its fake: a direct chat, and topics of a group that hang on a message each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, Unpack

from agent.conversation import Message, Secret, Thread
from channels import feishu
from channels.base import Channel
from tests.channels.box import Box, Service
from tests.channels.rig import ABILITIES, Call, Rule, Trouble
from tests.fakes.feishu import APP, DIRECT, GROUP, SECRET, FakeFeishu, Said

METHODS: dict[Call, tuple[str, ...]] = {
    "post": ("message.send",),
    "edit": ("card.write", "card.replace", "message.update"),
    "delete": ("message.recall",),
    "upload": ("file.upload",),
    "any": ("*",),
}


class FeishuWire:
    """`tests.channels.rig.Wire` over the fake."""

    def __init__(self, server: FakeFeishu) -> None:
        self._server = server

    def fault(self, kind: Trouble, call: Call, *, topic: int | None = None, **rule: Unpack[Rule]) -> None:
        for method in METHODS[call]:
            self._server.fault(kind, method, chat=topic, **rule)

    def count(self, call: Call) -> int:
        return len(self._server.calls_of(*(method.strip("*") for method in METHODS[call])))

    def topics(self) -> set[int]:
        return {self._server.places[made.place] for made in self._server.calls if made.place in self._server.places}

    async def stop(self) -> None:
        await self._server.stop()

    async def start(self) -> None:
        await self._server.start(self._server.port)

    def abort(self) -> None:
        self._server.abort()

    def deafen(self) -> None:
        self._server.deafen()


class FeishuRig:
    """`tests.channels.rig.Rig` of Feishu."""

    name = "feishu"
    # Events are kept for hours only: what counts is the history. A file comes without words. Edits are not told: what a
    # message says is read when its answer begins.
    can = frozenset(ABILITIES) - {"kept", "captions", "amend"}

    def __init__(self, server: FakeFeishu, settings: feishu.Settings) -> None:
        self.server = server
        self.box = Box()
        self.wire = FeishuWire(server)
        self._service = Service(lambda: feishu.connect(settings), self.box)
        self._away = False
        self._roots: dict[int, str] = {}
        self._said = ""  # the person's last message in the direct chat
        self._event = ""  # the last press or entry of the menu
        server.places[DIRECT] = 0

    @property
    def channel(self) -> Channel:
        return self._service.channel

    @classmethod
    @asynccontextmanager
    async def start(cls, folder: Path, **settings: Any) -> AsyncIterator[Self]:
        async with FakeFeishu() as server:
            plain = feishu.Settings(app_id=APP, app_secret=Secret(SECRET), domain=server.base_url)
            rig = cls(server, replace(plain, **settings))
            await rig.back()
            try:
                yield rig
            finally:
                await rig.leave()

    async def leave(self) -> None:
        self._away = True  # the platform's tries to deliver will have run out
        await self._service.end()

    async def back(self) -> None:
        self._away = False
        await self._service.begin()

    # ------------------------------------------------------------ people

    def root(self, topic: int) -> str:
        """The message on which a topic hangs; "" for the direct chat."""
        if topic and topic not in self._roots:
            said = self.server.message({"text": f"about {topic}"}, chat=GROUP, silent=True)
            self._roots[topic] = said.id
            self.server.places[said.id] = topic
        return self._roots.get(topic, "")

    async def say(self, text: str, topic: int = 0, *, mention: bool = True) -> Message:
        count = len(self.box.messages)
        self.mutter(text, topic, mention=mention)
        return await self.box.next(count + 1)

    def mutter(self, text: str, topic: int = 0, *, mention: bool = False) -> None:
        if topic:
            self.server.send(text, chat=GROUP, mention=mention, parent=self.root(topic), silent=self._away)
        else:
            self._said = self.server.send(text, silent=self._away).id

    def redeliver(self) -> None:
        self.server.redeliver()

    def send_file(self, name: str, data: bytes, caption: str = "") -> None:
        self.server.upload(name, data)

    def amend(self, text: str) -> None:
        self.server.edit(self._said, text)

    def withdraw(self) -> None:
        self.server.recall(self._said)

    def react(self, topic: int = 0) -> None:
        self.server.react(self._shown(topic).id)

    def command(self, text: str) -> None:
        self._event = self.server.choose(text.replace(" ", "_"))

    def buttons(self, topic: int = 0) -> list[str]:
        return [button["text"]["content"] for button in self.server.buttons(*self._place(topic))]

    def press(self, label: str, topic: int = 0) -> None:
        chat, root = self._place(topic)
        self._event = self.server.press(label, chat=chat, root=root)

    def felt(self) -> bool:
        return not self._event or self.server.acknowledged(self._event)

    def thread(self, topic: int = 0) -> Thread:
        chat, root = self._place(topic)
        return Thread("feishu", APP, chat, root)

    def visible(self, topic: int = 0) -> list[str]:
        return self.server.visible(*self._place(topic))

    def pinged(self, topic: int = 0) -> Sequence[str]:
        return self.server.pinged(*self._place(topic))

    def commands(self) -> list[str]:
        """Feishu's menu is made in its console; any command may be put there."""
        return ["stop", "model"]

    def _place(self, topic: int) -> tuple[str, str]:
        return (GROUP, self.root(topic)) if topic else (DIRECT, "")

    def _shown(self, topic: int) -> Said:
        """The bot's last message."""
        return self.server.bot_messages(*self._place(topic))[-1]
