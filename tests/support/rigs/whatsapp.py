"""Rig of WhatsApp: a direct chat, through a relay."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from agent.messages import Thread
from agent.setting import Secret
from bot.config.hooks import RelaySource
from channels import whatsapp
from channels.whatsapp.channel import WhatsAppChannel
from tests.fakes.whatsapp import APP_SECRET, JANE, KIM, NUMBER, TOKEN, VERIFY_TOKEN, FakeWhatsApp
from tests.support.relaying import KEY, relaying
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
SOURCES = {"whatsapp": RelaySource(Secret(APP_SECRET), "meta", Secret(VERIFY_TOKEN))}


def settings_for(server: FakeWhatsApp, relay: str, **more: Any) -> whatsapp.WhatsAppSettings:
    """Return the settings of a channel at this fake; the relay's address is where the fake posts to, too."""
    server.webhook = f"{relay}/hooks/whatsapp"
    plain = whatsapp.WhatsAppSettings(
        NUMBER, Secret(TOKEN), Secret(APP_SECRET), relay, Secret(KEY), base_url=server.base_url
    )
    return replace(plain, **{"per_person": 50.0, "burst": 50, "overall": 1000.0, **more})


class WhatsAppRig(FakeRig):
    """`tests.support.rigs.base.Rig` of WhatsApp."""

    name = "whatsapp"
    other = KIM
    # There are no groups, threads, edits, deletions, titles, histories and native commands, and a limit names no time.
    # Options are buttons or a list (tests/unit/channels/test_whatsapp.py), which stay when one is pressed.
    can = frozenset({"redelivery", "kept", "uploads", "downloads", "captions", "wire", "tokens", "apology"})

    def __init__(self, server: FakeWhatsApp, settings: whatsapp.WhatsAppSettings) -> None:
        super().__init__(lambda: whatsapp.connect(settings))
        self.server = server
        self.wire = PlacedWire(server, METHODS)

    @classmethod
    @asynccontextmanager
    async def start(cls, folder: Path, **settings: Any) -> AsyncIterator[Self]:
        async with FakeWhatsApp() as server, relaying(folder, SOURCES) as relay:
            server.reports = False  # what it reports of posts with unknown outcome is in a test of its own
            server.heard[JANE] = time.time()  # or nobody may write to her
            async with cls(server, settings_for(server, relay, **settings)).running() as rig:
                yield rig

    async def back(self) -> None:
        """Start it again: it looks often whether the platform answers."""
        await super().back()
        assert isinstance(self.channel, WhatsAppChannel)
        self.channel.account_seconds = 0.5

    # ------------------------------------------------------------ people

    def mutter(self, text: str, topic: int = 0, *, mention: bool = False, by: str = "") -> None:
        self.server.send(text, by or JANE)

    def redeliver(self) -> None:
        self.server.redeliver()

    def send_file(self, name: str, data: bytes, caption: str = "") -> None:
        self.server.upload(name, data, caption)

    def buttons(self, topic: int = 0) -> list[str]:
        shown = [one for one in self.server.visible() if one.options]
        return [title for title, _id in shown[-1].options] if shown else []

    def offers(self, topic: int = 0) -> list[str]:
        return [title for one in self.server.visible() for title, _id in one.options]

    def press(self, label: str, topic: int = 0, *, by: str = "") -> None:
        self.server.press(label, by or JANE)

    def felt(self) -> bool:
        """WhatsApp requires no answer to a press."""
        return True

    def thread(self, topic: int = 0) -> Thread:
        return Thread("whatsapp", NUMBER, JANE)

    def visible(self, topic: int = 0) -> list[str]:
        """Return names of files, texts, and the labels below them."""
        shown = ((one.name, one.text, *(title for title, _id in one.options)) for one in self.server.visible())
        return ["\n".join(filter(None, lines)) for lines in shown]
