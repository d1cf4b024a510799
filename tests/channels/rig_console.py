"""The console on two pipes: one person, one conversation, nothing can be taken back."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, Self

from agent.conversation import Message, Thread
from channels import console
from channels.base import Channel
from tests.channels.box import Box, Service
from tests.channels.rig import Wire


class ConsoleRig:
    """`tests.channels.rig.Rig` of the console."""

    name = "console"
    can = frozenset(["uploads"])

    def __init__(self, settings: console.Settings) -> None:
        self.box = Box()
        self.screen = ""
        self._settings = settings
        self._service = Service(self._connect, self.box)
        self._keys = -1

    @property
    def channel(self) -> Channel:
        return self._service.channel

    @property
    def wire(self) -> Wire:
        return self._none()

    @classmethod
    @asynccontextmanager
    async def start(cls, folder: Path, **settings: Any) -> AsyncIterator[Self]:
        plain = console.Settings(name="jane", downloads=str(folder / "downloads"))
        rig = cls(replace(plain, **settings))
        await rig.back()
        try:
            yield rig
        finally:
            await rig.leave()

    def _connect(self) -> AbstractAsyncContextManager[Channel]:
        @asynccontextmanager
        async def connect() -> AsyncIterator[Channel]:
            their_in, self._keys = os.pipe()
            screen, their_out = os.pipe()

            def read() -> None:
                with suppress(BlockingIOError):
                    self.screen += os.read(screen, 1 << 16).decode()

            os.set_blocking(screen, False)
            loop = asyncio.get_running_loop()
            loop.add_reader(screen, read)
            try:
                with os.fdopen(their_in) as stdin, os.fdopen(their_out, "w") as stdout:
                    async with console.connect(self._settings, stdin=stdin, stdout=stdout) as channel:
                        yield channel
            finally:
                os.close(self._keys)  # its reading thread ends
                loop.remove_reader(screen)
                read()
                os.close(screen)

        return connect()

    async def leave(self) -> None:
        await self._service.end()

    async def back(self) -> None:
        await self._service.begin()

    # ------------------------------------------------------------ people

    async def say(self, text: str, topic: int = 0, *, mention: bool = True) -> Message:
        count = len(self.box.messages)
        self.mutter(text)
        return await self.box.next(count + 1)

    def mutter(self, text: str, topic: int = 0, *, mention: bool = False) -> None:
        os.write(self._keys, f"{text}\n".encode())

    def redeliver(self) -> None:
        self._none()

    def send_file(self, name: str, data: bytes, caption: str = "") -> None:
        self._none()

    def amend(self, text: str) -> None:
        self._none()

    def withdraw(self) -> None:
        self._none()

    def react(self, topic: int = 0) -> None:
        self._none()

    def command(self, text: str) -> None:
        self._none()

    def buttons(self, topic: int = 0) -> list[str]:
        self._none()

    def press(self, label: str, topic: int = 0) -> None:
        self._none()

    def felt(self) -> bool:
        self._none()

    def thread(self, topic: int = 0) -> Thread:
        return Thread("console", "local", "jane")

    def visible(self, topic: int = 0) -> list[str]:
        return [self.screen] if self.screen else []

    def pinged(self, topic: int = 0) -> Sequence[str]:
        return []

    def commands(self) -> list[str]:
        return []

    def _none(self) -> NoReturn:
        raise NotImplementedError("a terminal has none of this")
