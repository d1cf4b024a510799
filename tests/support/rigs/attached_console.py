"""Rig of a console that is attached to a running service: `fawn chat --continue` on pipes, opened anew after a kill.

A console has one person and one conversation, and prints: what it shows is one text, in which nothing disappears.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from agent.messages import Thread
from tests.support.forked_services import Running, fork
from tests.support.rigs.console import ConsoleRig

if TYPE_CHECKING:
    from tests.support.service_process import Service

PERSON = "jane"
_OPTION = re.compile(r"(?m)^ *(\d+)\. (.+?) *$")


class AttachedConsoleRig(ConsoleRig):
    """The person at the console beside a service."""

    name = "console"
    other = ""
    can = frozenset(["uploads", "live"])

    def __init__(self, folder: Path) -> None:
        self._keys_path, self._screen_path = folder / "keys", folder / "screen"
        os.mkfifo(self._keys_path)
        self._fifo = os.open(self._keys_path, os.O_RDWR)  # so that a console finds no end of its input
        self._process: Running | None = None

    async def attach(self, service: Service) -> None:
        """Open a console. The one before ends with its service."""
        await self.detach()
        arguments = ("chat", "--continue", "--config", "config.yaml")
        environment = {**service.environment(), "USER": PERSON, "LOGNAME": PERSON}
        self._process = await fork(
            arguments, service.folder, environment, self._screen_path, service.folder / "console.log", self._keys_path
        )

    async def detach(self) -> None:
        """Leave the console."""
        if self._process is not None:
            self._process.kill()
            await self._process.wait()
            self._process = None

    def mutter(self, text: str, topic: int = 0, *, mention: bool = False, by: str = "") -> None:
        """Type a line. A command begins with a slash here; what Telegram's tests call `!stop` is `/stop`."""
        line = f"/{text[1:]}" if text.startswith("!") else text
        os.write(self._fifo, f"{line}\n".encode())

    def press(self, label: str, topic: int = 0, *, by: str = "") -> None:
        """Type the number that stands before the label, where it was printed last."""
        numbers = [number for number, option in _OPTION.findall(self._screen()) if option.rstrip(".") == label]
        assert numbers, f"no option {label!r}"
        self.mutter(numbers[-1])

    def offers(self, topic: int = 0) -> list[str]:
        """The labels of all options that were printed."""
        return [option for _number, option in _OPTION.findall(self._screen())]

    def thread(self, topic: int = 0) -> Thread:
        return Thread("console", "local", PERSON)

    def visible(self, topic: int = 0) -> list[str]:
        return [text] if (text := self._screen()) else []

    def _screen(self) -> str:
        return self._screen_path.read_text(errors="replace") if self._screen_path.exists() else ""
