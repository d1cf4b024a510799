"""The long connection as the channel sees it: events in order, each answered when it is stored, and how it goes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson

from channels.base import Health, NotStored, Readiness
from channels.feishu import Settings
from channels.vitals import Vitals

log = logging.getLogger(__name__)

PROGRAM = Path(__file__).with_name("process.py")
LINE = 16 << 20  # bytes of one event at most
SILENCE = 45.0  # seconds without a word after which the process is started anew: connecting may take 30
LOADING = 120.0  # …while it imports the SDK
STALE = 5.0  # seconds: the process speaks every second
SLOWEST = 30.0  # seconds between two starts

TOO_MANY = 1000040350  # open.feishu.cn/document/server-docs/event-subscription-guide: 50 connections an app
_WORDS = {
    TOO_MANY: "Feishu has too many long connections of this app (50 at most): stop the other programs that use it.",
    403: "Feishu forbids the long connection: choose it under Events & Callbacks in the developer console.",
    514: "Feishu rejects the app's id or secret: take both from the developer console.",
}

Take = Callable[[bytes], Awaitable[object]]
"""Store one raw event; gives what the platform is answered (None for most). Raises NotStored."""


class Link:
    """One long connection, in a process that is started again when it ends."""

    def __init__(self, settings: Settings, up: Callable[[float], None]) -> None:
        self._settings = settings
        self._up = up  # called whenever the connection was made, with the seconds that there was none
        self._lost = -math.inf  # time.monotonic() when it was there last
        self.vitals = Vitals("feishu", log)
        self._heard = time.monotonic()
        self._last = ""  # what the process said of its end

    def readiness(self) -> Readiness:
        """Ready only while the process says so."""
        age = time.monotonic() - self._heard
        if self.vitals.ready and age > STALE:
            return Readiness(Health.DOWN, time.time() - age, f"The Feishu connection is silent for {age:.0f} seconds.")
        return self.vitals.now

    async def run(self, take: Take) -> None:
        """Hand events to `take` until cancelled."""
        failures = 0
        while True:
            began = time.monotonic()
            why = await self._process(take)
            self.vitals.became(Health.DOWN, f"The process of the Feishu connection ended ({why}); it is started again.")
            failures = 0 if time.monotonic() - began > 600 else failures + 1
            await asyncio.sleep(min(SLOWEST, 0.5 * 2.0**failures) * random.uniform(0.7, 1.3))  # noqa: S311 — no secret

    async def _process(self, take: Take) -> str:
        """One life of the process; gives the reason of its end."""
        self._last = ""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", str(PROGRAM), stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=LINE
        )
        assert process.stdin  # noqa: S101 — it was asked for
        assert process.stdout  # noqa: S101 — likewise
        try:
            with contextlib.suppress(OSError):
                self._write(process, **self._words())
                await self._talk(process, process.stdout, take)
        except TimeoutError:
            return "no word from it"
        except ValueError as error:
            return f"nonsense from it: {type(error).__name__}"
        finally:
            if process.returncode is None:
                process.kill()
            process.stdin.close()
            await process.wait()
        return self._last or f"status {process.returncode}"

    def _words(self) -> dict[str, object]:
        settings = self._settings
        return {
            "app_id": settings.app_id,
            "app_secret": settings.app_secret.reveal(),
            "domain": settings.base_url,
            "proxy": settings.proxy,
            "ca_file": settings.ca_file,
        }

    async def _talk(self, process: Process, lines: asyncio.StreamReader, take: Take) -> None:
        patience = LOADING
        while True:
            async with asyncio.timeout(patience):
                line = await lines.readline()
            if not line:
                return
            words: dict[str, Any] = orjson.loads(line)
            self._heard = time.monotonic()
            if "event" in words:
                self._write(process, number=words["number"], **await self._taken(take, words["event"]))
            else:
                patience = SILENCE
                self._state(words)

    async def _taken(self, take: Take, event: str) -> dict[str, object]:
        try:
            return {"ok": True, "data": await take(event.encode())}
        except NotStored as error:
            log.error("feishu.not_stored reason=%s", error)  # noqa: TRY400 — the reason is enough
            return {"ok": False}

    def _state(self, words: dict[str, Any]) -> None:
        match words["state"]:
            case "up":
                fresh, away = not self.vitals.ready, time.monotonic() - self._lost
                self._lost = time.monotonic()
                self.vitals.became(Health.READY)
                if fresh:
                    self._up(away)
            case "died":
                self._last = str(words["reason"])
            case "down":
                reason = _WORDS.get(words.get("code", 0)) or f"Feishu cannot be reached: {words['reason']}."
                self.vitals.became(Health.DOWN, reason)

    def _write(self, process: Process, **words: object) -> None:
        assert process.stdin  # noqa: S101 — it was asked for
        process.stdin.write(orjson.dumps(words) + b"\n")
