"""Rig of Feishu: a direct chat, and group topics under one message each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from agent.messages import Thread
from agent.setting import Secret
from channels import feishu
from channels.feishu.channel import FeishuChannel
from channels.feishu.connection import PROGRAM
from channels.shared.lifecycle import open_channel
from tests.fakes.feishu import APP, DIRECT, GROUP, JANE, SECRET, FakeFeishu, Said
from tests.support.forked_services import python
from tests.support.rigs.base import ABILITIES, Call
from tests.support.rigs.platform import FakeRig, PlacedWire

METHODS: dict[Call, tuple[str, ...]] = {
    "post": ("message.send",),
    "edit": ("card.write", "card.replace", "message.update"),
    "delete": ("message.recall",),
    "upload": ("file.upload",),
    "album": ("file.upload",),
    "any": ("*",),
}


def forked_channel(settings: feishu.FeishuSettings) -> FeishuChannel:
    """Return a channel whose SDK process comes from the fork server, which has loaded what the SDK imports."""
    return FeishuChannel(settings, [*python(), PROGRAM[-1]])


class FeishuRig(FakeRig):
    """`tests.support.rigs.base.Rig` of Feishu."""

    name = "feishu"
    other = "ou_eve"
    # The platform keeps events for hours only, so the history counts. Each file is a message, without a caption. Edits
    # are not sent as events: the text is read when the answer begins. The menu is configured by hand. Threads have no
    # titles. A card does not know the messages that show it.
    can = (
        frozenset(ABILITIES)
        - {"documents", "kept", "albums", "captions", "amend", "menu", "titles", "title_events"}
        - {"local_times", "handles", "missing", "early_files", "tokens"}
    )

    connect = staticmethod(partial(open_channel, f"{__name__}:forked_channel"))

    def __init__(self, server: FakeFeishu, settings: feishu.FeishuSettings) -> None:
        super().__init__(lambda: self.connect(settings))
        self.server = server
        self.wire = PlacedWire(server, METHODS)
        self._away = False
        self.roots: dict[int, str] = {}
        self._said = ""  # the person's last message in the direct chat
        self._event = ""  # the last press or entry of the menu
        server.places[DIRECT] = 0

    @classmethod
    @asynccontextmanager
    async def start(cls, folder: Path, **settings: Any) -> AsyncIterator[Self]:
        async with FakeFeishu() as server:
            plain = feishu.FeishuSettings(app_id=APP, app_secret=Secret(SECRET), domain=server.base_url)
            async with cls(server, replace(plain, **settings)).running() as rig:
                yield rig

    async def leave(self) -> None:
        self._away = True  # the platform's tries to deliver will have run out
        await super().leave()

    async def back(self) -> None:
        self._away = False
        await super().back()

    # ------------------------------------------------------------ people

    def root(self, topic: int) -> str:
        """Return the message under which a topic is; "" for the direct chat."""
        if topic and topic not in self.roots:
            said = self.server.message({"text": f"about {topic}"}, chat=GROUP, silent=True)
            self.roots[topic] = said.id
            self.server.places[said.id] = topic
        return self.roots.get(topic, "")

    def mutter(self, text: str, topic: int = 0, *, mention: bool = False, by: str = "") -> None:
        if topic:
            place = {"chat": GROUP, "parent": self.root(topic), "sender": by or JANE}
            self.server.send(text, mention=mention, silent=self._away, **place)
        else:
            self._said = self.server.send(text, silent=self._away).id

    def redeliver(self) -> None:
        self.server.redeliver()

    def send_file(self, name: str, data: bytes, caption: str = "") -> None:
        self.server.upload(name, data)

    def withdraw(self) -> None:
        self.server.recall(self._said)

    def react(self, topic: int = 0) -> None:
        self.server.react(self._shown(topic).id)

    def rate(self, mark: str, topic: int = 0) -> None:
        self.server.react(self._shown(topic).id, {"👍": "THUMBSUP", "👎": "ThumbsDown"}[mark])

    def unrate(self, mark: str, topic: int = 0) -> None:
        self.server.unreact(self._shown(topic).id, {"👍": "THUMBSUP", "👎": "ThumbsDown"}[mark])

    def depart(self, person: str) -> None:
        self.server.statuses[person] = {"is_resigned": True, "is_activated": False}

    def erase(self, topic: int = 0) -> None:
        self.server.recall(self._shown(topic).id)

    def command(self, text: str) -> None:
        self._event = self.server.choose(text.replace(" ", "_"))

    def buttons(self, topic: int = 0) -> list[str]:
        return [button["text"]["content"] for button in self.server.buttons(*self._place(topic))]

    def offers(self, topic: int = 0) -> list[str]:
        cards = [self.server.cards[said.card] for said in self.server.bot_messages(*self._place(topic)) if said.card]
        return [e["text"]["content"] for card in cards for e in card.elements() if e["tag"] == "button"]

    def danger(self, topic: int = 0) -> list[str]:
        return [
            button["text"]["content"]
            for button in self.server.buttons(*self._place(topic))
            if button["type"] == "danger"
        ]

    def folded(self, topic: int = 0) -> list[str]:
        return self.server.folded(*self._place(topic))

    def press(self, label: str, topic: int = 0, *, by: str = "") -> None:
        chat, root = self._place(topic)
        self._event = self.server.press(label, chat=chat, root=root, person=by or JANE)

    def felt(self) -> bool:
        return not self._event or self.server.acknowledged(self._event)

    def thread(self, topic: int = 0) -> Thread:
        chat, root = self._place(topic)
        return Thread("feishu", APP, chat, root)

    def visible(self, topic: int = 0) -> list[str]:
        return self.server.visible(*self._place(topic))

    def pinged(self, topic: int = 0) -> Sequence[str]:
        return self.server.pinged(*self._place(topic))

    def _place(self, topic: int) -> tuple[str, str]:
        return (GROUP, self.root(topic)) if topic else (DIRECT, "")

    def _shown(self, topic: int) -> Said:
        """The bot's last message."""
        return self.server.bot_messages(*self._place(topic))[-1]
