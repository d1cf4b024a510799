"""Commands that ask at a terminal, on a pseudo-terminal, in a folder without secrets of platforms."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import signal
import termios
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from tests.support.forked_services import Running, fork_on
from tests.support.service_process import Service

PATIENCE_SECONDS = 60.0


class Wizard:
    """`fawn setup …` on a pseudo-terminal."""

    def __init__(self, screen: int, process: Running) -> None:
        self.screen, self.process = screen, process
        self.text = self.seen = ""

    async def shows(self, pattern: str) -> re.Match[str]:
        """Wait for a text that matches, after what was found before."""
        async with asyncio.timeout(PATIENCE_SECONDS), self._telling():
            while not (found := re.search(pattern, self.text)):
                more = (await asyncio.to_thread(os.read, self.screen, 4096)).decode(errors="replace")
                self.text, self.seen = self.text + more, self.seen + more
        self.text = self.text[found.end() :]
        return found

    @asynccontextmanager
    async def _telling(self) -> AsyncIterator[None]:
        """Have a test that waits in vain show the screen."""
        try:
            yield
        except asyncio.CancelledError:
            print(f"the screen had: {self.seen[-2000:]!r}")
            raise

    async def types(self, line: str) -> None:
        os.write(self.screen, f"{line}\n".encode())

    async def leaves(self) -> int:
        """Press Ctrl-C once it waits: just before a read of the C library, the signal counts only at the next key."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
                await asyncio.sleep(0.01)
            self.process.send_signal(signal.SIGINT)
            return await self.process.wait()


class NewService(Service):
    """A folder with a configuration, but without secrets of platforms."""

    def environment(self) -> dict[str, str]:
        kept = super().environment() | {"TERM": "xterm-256color"}
        del kept["TELEGRAM_BOT_TOKEN"]
        return kept

    def wizard(self, *arguments: str, columns: int = 200) -> AbstractAsyncContextManager[Wizard]:
        return at_terminal(self, *arguments, columns=columns)


@asynccontextmanager
async def at_terminal(service: Service, *arguments: str, columns: int = 200) -> AsyncIterator[Wizard]:
    """Run `fawn` on a pseudo-terminal in the folder of a service."""
    screen, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (40, columns))
    process = await fork_on([terminal] * 3, arguments, service.folder, service.environment())
    os.close(terminal)
    try:
        yield Wizard(screen, process)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.wait()
        os.close(screen)
