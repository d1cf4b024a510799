"""Rig of WeChat: the direct chat of one person."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from agent.messages import Thread
from channels import wechat
from channels.shared.reply_window import ReplyWindows
from channels.wechat.channel import WeChatChannel
from channels.wechat.login import Login, kept_name
from tests.fakes.wechat import BOT, JANE, KIM, FakeWeChat, Window
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


def settings_for(server: FakeWeChat, **more: Any) -> wechat.WeChatSettings:
    """Return the settings of a channel at this fake."""
    plain = wechat.WeChatSettings(JANE, base_url=server.base_url, cdn_url=f"{server.base_url}/c2c")
    return replace(plain, **{"per_person": 50.0, **more})


def login_of(server: FakeWeChat) -> dict[str, str]:
    """Return what the service keeps once Jane has scanned the code."""
    return {kept_name(JANE): Login(server.login(), server.base_url, BOT, JANE).dump()}


class WeChatRig(FakeRig):
    """`tests.support.rigs.base.Rig` of WeChat."""

    name = "wechat"
    other = KIM
    # There are no groups, threads, buttons, edits, deletions, reactions, titles, captions, histories and native
    # commands, and a limit names no time. The contract writes more than ten messages: that bound has tests of its own.
    can = frozenset({"redelivery", "kept", "uploads", "downloads", "wire", "tokens", "handles", "apology"})

    def __init__(self, server: FakeWeChat, settings: wechat.WeChatSettings) -> None:
        super().__init__(lambda: wechat.connect(settings))
        self.server = server
        self.wire = PlacedWire(server, METHODS)

    @classmethod
    @asynccontextmanager
    async def start(cls, folder: Path, **settings: Any) -> AsyncIterator[Self]:
        async with FakeWeChat() as server:
            server.budget = False
            server.windows[JANE] = Window(1e12)  # or nobody may write to her
            rig = cls(server, settings_for(server, **settings))
            rig.box.kept |= login_of(server)
            async with rig.running():
                yield rig

    async def back(self) -> None:
        """Start it again, without the bound of ten messages, which the contract does not keep."""
        await super().back()
        assert isinstance(self.channel, WeChatChannel)
        if not self.server.budget:
            self.channel.windows = ReplyWindows("WeChat", 86_400.0)

    # ------------------------------------------------------------ people

    def mutter(self, text: str, topic: int = 0, *, mention: bool = False, by: str = "") -> None:
        self.server.send(text, by or JANE)

    def redeliver(self) -> None:
        self.server.redeliver()

    def send_file(self, name: str, data: bytes, caption: str = "") -> None:
        self.server.upload(name, data)

    def felt(self) -> bool:
        """WeChat requires no answer."""
        return True

    def used_handle(self) -> bool:
        return bool(shown := self.server.visible()) and all(one.context for one in shown)

    def thread(self, topic: int = 0) -> Thread:
        return Thread("wechat", BOT, JANE)

    def visible(self, topic: int = 0) -> list[str]:
        return [one.text or one.name for one in self.server.visible()]
