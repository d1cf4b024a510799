"""Run the parser of untrusted data as a child process.

A crash, an endless loop or a memory bomb then ends only that process, the event loop never waits for it, and the
libraries take no memory between two calls. Before the process sees the data, it gives up all system calls but those
for its pipes and its memory; so what comes back is as untrusted as the data, and is read with bounds.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from agent.fair_slots import FairSlots
from sandbox.processes import start_process
from sandbox.system_calls import parser_program

log = logging.getLogger(__name__)

WORKER = Path(__file__).with_name("worker.py")
TASK_SECONDS = {"html": 10.0, "text": 10.0, "pdf": 30.0, "picture": 20.0}  # of the processor
BUSY_FACTOR = 4  # as often by the clock: the process starts, and on a busy machine it gets a part of a processor
USED_UP = (-signal.SIGXCPU, -signal.SIGKILL)  # how the kernel ends it: the seconds, or the memory
MAX_PROCESSES = 2  # of the service: each may use MEMORY_BYTES of the worker
MAX_PER_OWNER = 1  # of one conversation, so that the other place is free for others
MAX_ANSWER_BYTES = 16 << 20
MAX_ERROR_BYTES = 1 << 16
PROBE_SECONDS = 20.0
END_SECONDS = 5.0  # until the pipes of a killed process are closed
PAGE: dict[str, type] = {"title": str, "date": str, "text": str}
FIELDS: dict[str, dict[str, type]] = {
    "html": PAGE,
    "text": PAGE,
    "pdf": PAGE,
    "picture": {"mime": str, "width": int, "height": int},
}
ENVIRONMENT = {"LANG": "C.UTF-8"}  # the service's holds secrets

ReadData = Callable[[], Awaitable[bytes]]


class ParserFailed(Exception):
    """The data cannot be parsed. The text says why, for the model."""


class ParserProcess:
    """Starts one process per task, and few at a time in the whole service: share one instance."""

    def __init__(self) -> None:
        self._slots = FairSlots()

    async def run(
        self, task: str, data: bytes | ReadData, *, owner: Hashable = "", **options: Any
    ) -> tuple[dict[str, Any], bytes]:
        """Run a task of the worker; return its answer and its data. Raises ParserFailed.

        `owner` is the conversation. A function is called for the data when the place is there, so that waiting takes
        no memory.
        """
        groups = {"parsers": MAX_PROCESSES, ("of", owner): MAX_PER_OWNER}
        await self._slots.acquire(owner, groups)
        try:
            body = data if isinstance(data, bytes) else await data()
            code, out, errors = await _communicate(task, _head(task, **options) + body)
        finally:
            self._slots.release(owner, groups)
        if code:
            log.warning("parser.failed task=%s code=%d error=%r", task, code, errors[-300:].decode(errors="replace"))
            if code in USED_UP:
                raise ParserFailed(f"parsing it takes more than {TASK_SECONDS[task]:.0f} s, or too much memory")
            raise ParserFailed("it cannot be parsed: it is damaged, or too large")
        return _read_answer(task, out)


def is_confined() -> bool:
    """Return whether this machine lets parsers give up their system calls. Blocks."""
    try:
        done = subprocess.run(
            _argv(), input=_head("probe"), capture_output=True, env=ENVIRONMENT, timeout=PROBE_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return bool(orjson.loads(done.stdout).get("confined"))


def _argv() -> list[str]:
    return [sys.executable, "-I", "-B", str(WORKER)]


def _head(task: str, **options: Any) -> bytes:
    """Return the line that tells the worker what to do."""
    calls = base64.b64encode(parser_program()).decode()
    seconds = int(TASK_SECONDS.get(task, PROBE_SECONDS))
    return orjson.dumps({"task": task, "calls": calls, "seconds": seconds, "options": options}) + b"\n"


def _read_answer(task: str, out: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the answer with the fields of the task, and its data: the process may be in a stranger's hand."""
    head, _, body = out.partition(b"\n")
    try:
        answer = orjson.loads(head)
    except orjson.JSONDecodeError:
        answer = None
    if isinstance(answer, dict) and isinstance(answer.get("error"), str):
        raise ParserFailed(answer["error"][:MAX_ERROR_BYTES])
    fields = FIELDS[task]
    if not isinstance(answer, dict) or any(type(answer.get(name)) is not kind for name, kind in fields.items()):
        log.warning("parser.odd_answer task=%s bytes=%d", task, len(out))
        raise ParserFailed("it cannot be parsed: it is damaged")
    return {name: answer[name] for name in fields}, body


async def _communicate(task: str, data: bytes) -> tuple[int | None, bytes, bytes]:
    """Run the worker; return its exit code, stdout and stderr. It does not survive a timeout or a cancellation."""
    process = await start_process(
        *_argv(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=ENVIRONMENT,
    )
    try:
        async with asyncio.timeout(BUSY_FACTOR * TASK_SECONDS[task]):
            out, errors = await _exchange(process, data)
            await process.wait()
        return process.returncode, out, errors
    except TimeoutError:
        raise ParserFailed(f"parsing it took longer than {BUSY_FACTOR * TASK_SECONDS[task]:.0f} s") from None
    finally:
        await asyncio.shield(_end(process))


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the process and read what it left: asyncio notices its end only after that of its pipes."""
    if process.returncode is None:
        process.kill()
    with suppress(TimeoutError):
        async with asyncio.timeout(END_SECONDS):
            for stream in (process.stdout, process.stderr):
                while stream and await stream.read(1 << 16):
                    pass
            await process.wait()


async def _exchange(process: asyncio.subprocess.Process, data: bytes) -> tuple[bytes, bytes]:
    """Write the data and read what comes back, up to its bounds. Raises ParserFailed."""
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    if not (stdin and stdout and stderr):
        raise ParserFailed("its parser has no pipes")  # never: they were asked for
    reading = [
        asyncio.create_task(_read_up_to(stdout, MAX_ANSWER_BYTES), name="parser answer"),
        asyncio.create_task(_read_up_to(stderr, MAX_ERROR_BYTES), name="parser errors"),
    ]
    try:
        with suppress(ConnectionError):  # it has ended: its exit code says more
            stdin.write(data)
            await stdin.drain()
        stdin.close()
        out, errors = await asyncio.gather(*reading)
    finally:
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
    return out, errors


async def _read_up_to(stream: asyncio.StreamReader, limit: int) -> bytes:
    """Return everything. Raises ParserFailed if it is more than the limit."""
    read = bytearray()
    while chunk := await stream.read(1 << 16):
        read += chunk
        if len(read) > limit:
            raise ParserFailed("it cannot be parsed: what it contains is too large")
    return bytes(read)
