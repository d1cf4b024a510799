"""Rig of WeCom: a direct chat, and groups, which have no threads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from agent.messages import Thread
from agent.setting import Secret
from channels import wecom
from channels.wecom.channel import WeComChannel
from tests.fakes.wecom import BOT, JANE, KIM, SECRET, FakeWeCom, group
from tests.support.rigs.base import Call
from tests.support.rigs.platform import FakeRig, PlacedWire

METHODS: dict[Call, tuple[str, ...]] = {
    "post": ("post",),
    "edit": ("edit",),
    "delete": ("delete",),
    "upload": ("upload",),
    "album": ("file",),
    "any": ("*",),
}
DIRECT = f"@{JANE}"


class WeComRig(FakeRig):
    """`tests.support.rigs.base.Rig` of WeCom."""

    name = "wecom"
    other = KIM
    # An answer streams only where it answers a message (tests/unit/channels/test_wecom.py): the contract's replies do
    # not. There are no edits, deletions, reactions, threads, titles, histories, native commands and mentions. A card
    # changes only when it is pressed. Files go one by one. A limit names no time.
    can = frozenset(
        {
            "redelivery",
            "topics",
            "buttons",
            "uploads",
            "downloads",
            "wire",
            "socket",
            "handles",
            "apology",
            "early_files",
        }
    )

    def __init__(self, server: FakeWeCom, settings: wecom.WeComSettings) -> None:
        super().__init__(lambda: wecom.connect(settings))
        self.server = server
        self.wire = PlacedWire(server, METHODS)
        server.places[DIRECT] = 0
        server.known.add(DIRECT)

    @classmethod
    @asynccontextmanager
    async def start(cls, folder: Path, **settings: Any) -> AsyncIterator[Self]:
        async with FakeWeCom() as server:
            plain = wecom.WeComSettings(bot_id=BOT, secret=Secret(SECRET), gateway_url=server.ws_url, per_reply=5.0)
            async with cls(server, replace(plain, **settings)).running() as rig:
                yield rig

    # ------------------------------------------------------------ people

    def chat(self, topic: int) -> str:
        """Return the group of a topic, or the direct chat."""
        if not topic:
            return DIRECT
        self.server.places[group(topic)] = topic
        self.server.known.add(group(topic))
        return group(topic)

    def mutter(self, text: str, topic: int = 0, *, mention: bool = False, by: str = "") -> None:
        self.server.send(text, chat=self.chat(topic) if topic else "", mention=mention, sender=by or JANE)

    def redeliver(self) -> None:
        self.server.redeliver()

    def send_file(self, name: str, data: bytes, caption: str = "") -> None:
        self.server.upload(name, data)

    def hurry(self) -> None:
        assert isinstance(self.channel, WeComChannel)
        self.channel.early_seconds = 0.0

    def used_handle(self) -> bool:
        return bool(shown := self.server.visible(DIRECT)) and shown[-1].kind == "stream"

    def buttons(self, topic: int = 0) -> list[str]:
        cards = [one for one in self.server.visible(self.chat(topic)) if one.kind == "template_card"]
        return [each["text"] for each in cards[-1].buttons if each["key"] != "-"] if cards else []

    def offers(self, topic: int = 0) -> list[str]:
        shown = self.server.visible(self.chat(topic))
        return [each["text"] for one in shown for each in one.buttons if each["key"] != "-"]

    def labels(self, topic: int = 0) -> list[str]:
        shown = self.server.visible(self.chat(topic))
        return [each["text"] for one in shown for each in one.buttons if each["key"] == "-"]

    def press(self, label: str, topic: int = 0, *, by: str = "") -> None:
        self.server.press(label, self.chat(topic), by or JANE)

    def felt(self) -> bool:
        """WeCom requires no answer to a press."""
        return True

    def thread(self, topic: int = 0) -> Thread:
        return Thread("wecom", BOT, self.chat(topic))

    def visible(self, topic: int = 0) -> list[str]:
        """Return texts and the names of files. A card repeats the question above it."""
        shown = [one for one in self.server.visible(self.chat(topic)) if one.kind != "template_card"]
        return [one.text or one.name for one in shown]
