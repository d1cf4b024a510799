"""Supervise the SDK process of the long connection; answer each event when it is persisted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import orjson

from agent.settings.network import choose_proxy, trusted_file
from channels.base import Health, NotStored, Readiness
from channels.feishu import FeishuSettings
from channels.shared.event_connection import MAX_BACKOFF_SECONDS, EventConnection

log = logging.getLogger(__name__)

PROGRAM = (sys.executable, "-I", str(Path(__file__).with_name("sdk_process.py")))
MAX_LINE_BYTES = 16 << 20  # of one event
LOADING_TIMEOUT_SECONDS = 120.0  # until the process has imported the SDK
SILENCE_TIMEOUT_SECONDS = 45.0  # a process that sends nothing is replaced: connecting may take 30
STALE_SECONDS = 5.0  # the process reports every second

# open.feishu.cn/document/server-docs/event-subscription-guide
_FAILURES = {
    1000040350: "Feishu has too many long connections of this app (50 at most): stop the other programs that use it.",
    403: "Feishu forbids the long connection: choose it under Events & Callbacks in the developer console.",
    514: "Feishu rejects the app's id or secret: take both from the developer console.",
}

HandleEvent = Callable[[bytes], Awaitable[object]]
"""Stores one raw event and returns the platform's answer (None for most). Raises NotStored."""


class FeishuConnection(EventConnection[HandleEvent]):
    """One long connection. Each process of the `program` makes one; a lost one is replaced by the next process."""

    def __init__(
        self, settings: FeishuSettings, on_connected: Callable[[float], None], program: Sequence[str] = PROGRAM
    ) -> None:
        super().__init__("feishu", "Feishu", log)
        self._program = program
        self._settings = settings
        self._on_connected = on_connected  # takes the seconds without a connection
        self._connected_at = -math.inf  # time.monotonic() when it was last connected
        self._last_line_at = time.monotonic()
        self._failure = ""  # why the process says that its connection ended

    def readiness(self) -> Readiness:
        """Ready only while the process reports a connection."""
        age = time.monotonic() - self._last_line_at
        if self.health.is_ready and age > STALE_SECONDS:
            return Readiness(Health.DOWN, time.time() - age, f"The Feishu connection is silent for {age:.0f} seconds.")
        return self.health.now

    async def _connect_once(self, handle_event: HandleEvent, handlers: asyncio.TaskGroup) -> tuple[str, float]:
        """Run one process until it ends."""
        self._failure = ""
        process = await asyncio.create_subprocess_exec(
            *self._program, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=MAX_LINE_BYTES
        )
        assert process.stdin  # noqa: S101 — a PIPE was requested
        assert process.stdout  # noqa: S101 — likewise
        reason = ""
        try:
            with contextlib.suppress(OSError):
                _write_line(process.stdin, **self._process_settings())
                async for line in self._read_events(process.stdout):
                    answering = _store_and_answer(handle_event, line, process.stdin)
                    handlers.create_task(answering, name=f"feishu event {line['number']}")
        except TimeoutError:
            reason = "it sent nothing"
        except ValueError as error:
            reason = f"it sent no JSON: {type(error).__name__}"
        finally:
            if process.returncode is None:
                process.kill()
            process.stdin.close()
            await process.wait()
        reason = reason or f"status {process.returncode}"
        detail = self._failure or f"The process of the Feishu connection ended ({reason}); it is started again."
        return detail, MAX_BACKOFF_SECONDS

    def _process_settings(self) -> dict[str, object]:
        settings = self._settings
        return {
            "app_id": settings.app_id,
            "app_secret": settings.app_secret.reveal(),
            "domain": settings.base_url,
            "proxy": choose_proxy(settings.base_url, settings.proxy) or "",
            "ca_file": trusted_file(settings.ca_file),
        }

    async def _read_events(self, lines: asyncio.StreamReader) -> AsyncIterator[dict[str, Any]]:
        """Yield the events that the process sends until it ends, and record its state."""
        timeout = LOADING_TIMEOUT_SECONDS
        while True:
            async with asyncio.timeout(timeout):
                raw = await lines.readline()
            if not raw:
                return
            line: dict[str, Any] = orjson.loads(raw)
            self._last_line_at = time.monotonic()
            if "event" in line:
                yield line
            else:
                timeout = SILENCE_TIMEOUT_SECONDS
                self._note_state(line)

    def _note_state(self, line: dict[str, Any]) -> None:
        match line["state"]:
            case "up":
                is_new, away = not self.health.is_ready, time.monotonic() - self._connected_at
                self._connected_at = time.monotonic()
                self.health.set_health(Health.READY)
                if is_new:
                    self._on_connected(away)
            case "down":
                self._failure = _FAILURES.get(line["code"]) or f"Feishu cannot be reached: {line['reason']}."


async def _store_and_answer(handle_event: HandleEvent, line: dict[str, Any], stdin: asyncio.StreamWriter) -> None:
    answer: dict[str, object] = {"ok": True}
    try:
        answer["data"] = await handle_event(line["event"].encode())
    except NotStored:
        answer["ok"] = False
    if not stdin.is_closing():  # the process may have ended meanwhile
        _write_line(stdin, number=line["number"], **answer)


def _write_line(stdin: asyncio.StreamWriter, **line: object) -> None:
    stdin.write(orjson.dumps(line) + b"\n")
