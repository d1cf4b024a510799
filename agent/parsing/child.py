"""Run the parser of untrusted data as a child process.

A crash, an endless loop or a memory bomb then ends only that process, the event loop never waits for it, and the
libraries take no memory between two calls.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

import orjson

log = logging.getLogger(__name__)

WORKER = Path(__file__).with_name("worker.py")
TIMEOUT_SECONDS = 30.0
MAX_PROCESSES = 2  # each may use much memory


class ParserFailed(Exception):
    """The data cannot be parsed. The text says why, for the model."""


class ParserProcess:
    """Starts one process per task, and few at a time."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(MAX_PROCESSES)

    async def run(self, task: str, data: bytes, **options: Any) -> tuple[dict[str, Any], bytes]:
        """Run a task of the worker; return its answer and its data. Raises ParserFailed."""
        async with self._slots:
            code, out, errors = await _communicate(orjson.dumps({"task": task, **options}) + b"\n" + data)
        if code:
            log.warning("parser.failed task=%s code=%d error=%s", task, code, errors.decode()[-300:].strip())
            raise ParserFailed("it cannot be parsed: it is damaged, or too large")
        head, _, body = out.partition(b"\n")
        answer: dict[str, Any] = orjson.loads(head)
        if "error" in answer:
            raise ParserFailed(answer["error"])
        return answer, body


async def _communicate(data: bytes) -> tuple[int | None, bytes, bytes]:
    """Run the worker; return its exit code, stdout and stderr. It does not survive a timeout or a cancellation."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-B", str(WORKER)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"LANG": "C.UTF-8"},  # the service's environment holds secrets
    )
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            out, errors = await process.communicate(data)
        return process.returncode, out, errors
    except TimeoutError:
        raise ParserFailed(f"parsing it took longer than {TIMEOUT_SECONDS:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await asyncio.shield(process.wait())
