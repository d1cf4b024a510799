"""What the channel tests stand on: an inbox and posts in memory, and a rig per channel with its people's side."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from agent.conversation import Message, Secret, Thread
from channels import console, telegram
from channels.base import Channel, Health
from tests.channels.box import Box, Memory, listening
from tests.fakes.server import until
from tests.fakes.telegram import TOKEN, FakeTelegram

__all__ = ["RIGS", "Box", "ConsoleRig", "Memory", "Rig", "TelegramRig", "listening", "until"]


class Rig(Protocol):
    """A connected channel and the people on the other side. `can` says what the platform offers beyond the least:

    edits (a reply grows in place), redelivery, topics, groups, buttons, uploads, downloads, wire (a server that can
    be made to fail), apology (says in the chat that a message could not be stored).
    """

    name: str
    can: frozenset[str]
    channel: Channel
    box: Box

    async def say(self, text: str, topic: int = 0) -> Message:
        """A person writes; gives the message as it was received."""

    def thread(self, topic: int = 0) -> Thread:
        """The conversation in which `say` writes."""

    def visible(self, topic: int = 0) -> list[str]:
        """What people see there of the bot, message by message (where there is no grid of messages: all of it)."""


class TelegramRig:
    """Telegram: a private chat without topics, a forum with them."""

    name = "telegram"
    can = frozenset(["edits", "redelivery", "topics", "groups", "buttons", "uploads", "downloads", "wire", "apology"])
    forum = -1_001_000_000_001

    def __init__(self, channel: Channel, server: FakeTelegram) -> None:
        self.channel = channel
        self.server = server
        self.box = Box()

    def chat(self, topic: int) -> int:
        return self.forum if topic else 42

    async def say(self, text: str, topic: int = 0) -> Message:
        if topic:
            self.server.forum(self.forum, topic)
        count = len(self.box.messages)
        self.server.send(f"@fawn_bot {text}" if topic else text, chat=self.chat(topic), topic=topic)
        return await self.box.next(count + 1)

    def thread(self, topic: int = 0) -> Thread:
        if topic:
            self.server.forum(self.forum, topic)
        self.server.chat(self.chat(topic))
        return Thread("telegram", "123456", str(self.chat(topic)), str(topic or ""))

    def visible(self, topic: int = 0) -> list[str]:
        return [f"{shown.text}{shown.file_name}" for shown in self.server.visible(self.chat(topic), topic)]

    @classmethod
    @asynccontextmanager
    async def start(cls, folder: Path, **settings: Any) -> AsyncIterator[TelegramRig]:
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(FakeTelegram())
            plain = telegram.Settings(token=Secret(TOKEN), base_url=server.base_url, poll_seconds=5.0, per_group=600.0)
            channel = await stack.enter_async_context(telegram.connect(replace(plain, **settings)))
            rig = cls(channel, server)
            await stack.enter_async_context(listening(channel, rig.box))
            yield rig


class ConsoleRig:
    """The console on two pipes: one person, one conversation, nothing can be taken back."""

    name = "console"
    can = frozenset({"uploads"})

    def __init__(self, channel: Channel, keys: int) -> None:
        self.channel = channel
        self.box = Box()
        self.screen = ""
        self._keys = keys

    async def say(self, text: str, topic: int = 0) -> Message:
        count = len(self.box.messages)
        os.write(self._keys, f"{text}\n".encode())
        return await self.box.next(count + 1)

    def thread(self, topic: int = 0) -> Thread:
        return Thread("console", "local", "jane")

    def visible(self, topic: int = 0) -> list[str]:
        return [self.screen] if self.screen else []

    @classmethod
    @asynccontextmanager
    async def start(cls, folder: Path) -> AsyncIterator[ConsoleRig]:
        their_in, keys = os.pipe()
        screen, their_out = os.pipe()
        with os.fdopen(their_in) as stdin, os.fdopen(their_out, "w") as stdout:
            settings = console.Settings(name="jane", downloads=str(folder / "downloads"))
            async with console.connect(settings, stdin=stdin, stdout=stdout) as channel:
                rig = cls(channel, keys)

                def read() -> None:
                    with suppress(BlockingIOError):
                        rig.screen += os.read(screen, 1 << 16).decode()

                os.set_blocking(screen, False)
                asyncio.get_running_loop().add_reader(screen, read)
                try:
                    async with listening(channel, rig.box):
                        await until(lambda: channel.readiness().health is Health.READY)
                        yield rig
                finally:
                    asyncio.get_running_loop().remove_reader(screen)
                    os.close(keys)  # its reading thread ends
                    os.close(screen)


RIGS: dict[str, type[TelegramRig] | type[ConsoleRig]] = {"telegram": TelegramRig, "console": ConsoleRig}
