"""Rig of the console on two pipes: one person, one conversation, no edits."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from agent.messages import Thread
from channels import console
from channels.base import Channel
from tests.support.rigs.base import Wire
from tests.support.rigs.platform import FakeRig


class ConsoleRig(FakeRig):
    """`tests.support.rigs.base.Rig` of the console."""

    name = "console"
    other = ""
    can = frozenset(["uploads", "live"])

    def __init__(self, settings: console.ConsoleSettings, place: console.ConsolePlace) -> None:
        super().__init__(self._pipes)
        self.screen = ""
        self._settings, self._place = settings, place
        self._keys = -1

    @property
    def wire(self) -> Wire:
        raise NotImplementedError("a pipe has no server")

    @classmethod
    @asynccontextmanager
    async def start(cls, folder: Path, **settings: Any) -> AsyncIterator[Self]:
        plain = console.ConsoleSettings(name="jane", downloads=str(folder / "downloads"))
        async with cls(replace(plain, **settings), console.ConsolePlace(folder / "console")).running() as rig:
            yield rig

    @asynccontextmanager
    async def _pipes(self) -> AsyncIterator[Channel]:
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
                async with console.connect(self._settings, self._place, stdin=stdin, stdout=stdout) as channel:
                    yield channel
        finally:
            os.close(self._keys)  # its reading thread ends
            loop.remove_reader(screen)
            read()
            os.close(screen)

    # ------------------------------------------------------------ people

    def mutter(self, text: str, topic: int = 0, *, mention: bool = False, by: str = "") -> None:
        os.write(self._keys, f"{text}\n".encode())

    def thread(self, topic: int = 0) -> Thread:
        return Thread("console", "local", "jane")

    def visible(self, topic: int = 0) -> list[str]:
        return [self.screen] if self.screen else []
