"""Start, kill and ask the service of a drill, a process of its own, and run commands of Fawn on its folder."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import Process
from collections.abc import Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from typing import IO

from bot.drill.telegram_server import DrillTelegram
from sandbox.processes import start_process

START_SECONDS = 120.0  # on a machine that has much else to do
COMMAND_SECONDS = 120.0
LAST_WORDS = 400  # characters of the log, of a service that ended by itself


class NotStarted(Exception):
    """The service does not start; the text has its last words."""


class DrillService:
    """The service. `ended` has the last words of those that ended by themselves."""

    def __init__(self, folder: Path, telegram: DrillTelegram, program: Sequence[str]) -> None:
        self.ended: list[str] = []
        self._folder = folder
        self._telegram = telegram
        self._program = program
        self._process: Process | None = None
        self._log: IO[bytes] = (folder / "log").open("ab")

    async def spawn(self) -> Process:
        """Start it, and wait for nothing."""
        self._process = await self._run(self._log, "run")
        return self._process

    async def start(self) -> None:
        """Start it, and wait until it listens. Raises NotStarted."""
        polls, process = self._telegram.polls, await self.spawn()
        listens = asyncio.ensure_future(self._telegram.until(lambda: self._telegram.polls > polls))
        ends = asyncio.ensure_future(process.wait())
        try:
            await asyncio.wait({listens, ends}, timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not listens.done():
                raise NotStarted(self.last_words())
        finally:
            listens.cancel()
            ends.cancel()

    async def kill(self) -> None:
        """kill -9. A service that has ended by itself is noted."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is not None:
            self.ended.append(f"exit {process.returncode}: {self.last_words()}")
            return
        process.kill()
        await process.wait()

    def forget_ends(self) -> None:
        """Forget a service that has ended by itself: its start is tried in another way."""
        self._process = None

    async def command(self, *words: str) -> str:
        """Run a command of Fawn to its end; return what it printed. Raises NotStarted where it fails."""
        process = await self._run(PIPE, *words)
        async with asyncio.timeout(COMMAND_SECONDS):
            said, _ = await process.communicate()
        if process.returncode:
            raise NotStarted(said.decode("utf-8", "replace")[-LAST_WORDS:])
        return said.decode("utf-8", "replace")

    def last_words(self) -> str:
        """Return the end of the log."""
        self._log.flush()
        text = (self._folder / "log").read_text(errors="replace")
        return " ".join(text[-LAST_WORDS:].split())

    async def _run(self, output: object, *words: str) -> Process:
        return await start_process(
            *(*self._program, *words, "--config", "config.yaml"),
            stdin=DEVNULL, stdout=output, stderr=STDOUT, cwd=self._folder, env=_environment(),
        )  # fmt: skip


def _environment() -> dict[str, str]:
    """Return what a service of a drill gets: none of the operator's variables, which may hold accounts."""
    return {
        "PATH": os.defpath, "LANG": "C.UTF-8", "HOME": "/nonexistent", "PYTHONPATH": str(Path(__file__).parents[2]),
    }  # fmt: skip
