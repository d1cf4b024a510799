"""Supervise the SDK process of the long connection; answer each event when it is persisted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson

from channels.base import Health, NotStored, Readiness
from channels.feishu import FeishuSettings
from channels.shared.health import ConnectionHealth, backoff_seconds

log = logging.getLogger(__name__)

PROGRAM = Path(__file__).with_name("sdk_process.py")
MAX_LINE_BYTES = 16 << 20  # bytes of one event at most
SILENCE_SECONDS = 45.0  # seconds without a word after which the process is started anew: connecting may take 30
LOADING_SECONDS = 120.0  # …while it imports the SDK
STALE_SECONDS = 5.0  # seconds: the process speaks every second
MAX_BACKOFF_SECONDS = 30.0  # seconds between two starts

TOO_MANY_CODE = 1000040350  # open.feishu.cn/document/server-docs/event-subscription-guide: 50 connections an app
_WORDS = {
    TOO_MANY_CODE: "Feishu has too many long connections of this app (50 at most): stop the other programs"
    " that use it.",
    403: "Feishu forbids the long connection: choose it under Events & Callbacks in the developer console.",
    514: "Feishu rejects the app's id or secret: take both from the developer console.",
}

Take = Callable[[bytes], Awaitable[object]]
"""Store one raw event; gives what the platform is answered (None for most). Raises NotStored."""


class FeishuConnection:
    """One long connection, in a process that is started again when it ends."""

    def __init__(self, settings: FeishuSettings, up: Callable[[float], None]) -> None:
        self._settings = settings
        self._up = up  # called whenever the connection was made, with the seconds that there was none
        self._lost = -math.inf  # time.monotonic() when it was there last
        self.vitals = ConnectionHealth("feishu", log)
        self._heard = time.monotonic()
        self._last = ""  # what the process said of its end

    def readiness(self) -> Readiness:
        """Ready only while the process says so."""
        age = time.monotonic() - self._heard
        if self.vitals.is_ready and age > STALE_SECONDS:
            return Readiness(Health.DOWN, time.time() - age, f"The Feishu connection is silent for {age:.0f} seconds.")
        return self.vitals.now

    async def run(self, take: Take) -> None:
        """Hand events to `take` until cancelled. They begin in the order in which they came, which the store keeps, and
        none waits for the disk's answer to another."""
        failures = 0
        async with asyncio.TaskGroup() as takes:
            while True:
                began = time.monotonic()
                why = await self._run_process(take, takes)
                self.vitals.set_health(
                    Health.DOWN, f"The process of the Feishu connection ended ({why}); it is started again."
                )
                failures = 0 if time.monotonic() - began > 600 else failures + 1
                await asyncio.sleep(backoff_seconds(failures, MAX_BACKOFF_SECONDS))

    async def _run_process(self, take: Take, takes: asyncio.TaskGroup) -> str:
        """One life of the process; gives the reason of its end."""
        self._last = ""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", str(PROGRAM), stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=MAX_LINE_BYTES
        )
        assert process.stdin  # noqa: S101 — it was asked for
        assert process.stdout  # noqa: S101 — likewise
        try:
            with contextlib.suppress(OSError):
                _write_answer(process.stdin, **self._failure_text())
                async for words in self._read_events(process.stdout):
                    takes.create_task(
                        _store_and_answer(take, words, process.stdin), name=f"feishu event {words['number']}"
                    )
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

    def _failure_text(self) -> dict[str, object]:
        settings = self._settings
        return {
            "app_id": settings.app_id,
            "app_secret": settings.app_secret.reveal(),
            "domain": settings.base_url,
            "proxy": settings.proxy,
            "ca_file": settings.ca_file,
        }

    async def _read_events(self, lines: asyncio.StreamReader) -> AsyncIterator[dict[str, Any]]:
        """What the process sends up, until its end; how it goes is noted on the way."""
        patience = LOADING_SECONDS
        while True:
            async with asyncio.timeout(patience):
                line = await lines.readline()
            if not line:
                return
            words: dict[str, Any] = orjson.loads(line)
            self._heard = time.monotonic()
            if "event" in words:
                yield words
            else:
                patience = SILENCE_SECONDS
                self._note_state(words)

    def _note_state(self, words: dict[str, Any]) -> None:
        match words["state"]:
            case "up":
                fresh, away = not self.vitals.is_ready, time.monotonic() - self._lost
                self._lost = time.monotonic()
                self.vitals.set_health(Health.READY)
                if fresh:
                    self._up(away)
            case "died":
                self._last = str(words["reason"])
            case "down":
                reason = _WORDS.get(words.get("code", 0)) or f"Feishu cannot be reached: {words['reason']}."
                self.vitals.set_health(Health.DOWN, reason)


async def _store_and_answer(take: Take, words: dict[str, Any], stdin: asyncio.StreamWriter) -> None:
    """Store an event, then answer it."""
    answer: dict[str, object] = {"ok": True}
    try:
        answer["data"] = await take(words["event"].encode())
    except NotStored as error:
        log.error("feishu.not_stored reason=%s", error)  # noqa: TRY400 — the reason is enough
        answer["ok"] = False
    if not stdin.is_closing():  # the process may have ended meanwhile
        _write_answer(stdin, number=words["number"], **answer)


def _write_answer(stdin: asyncio.StreamWriter, **words: object) -> None:
    stdin.write(orjson.dumps(words) + b"\n")
