"""The transport of a stdio server: one message a line, each with a bound. Imports the MCP SDK: import it in a thread.

The SDK's own transport copies what it has of a line with each piece that comes, without a limit.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

import anyio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from agent.mcp.bounds import (
    BYTES_PER_LINE,
    LINE_COST_BYTES,
    MAX_LOGGED_LINES,
    MAX_MESSAGE_BYTES,
    MAX_STRANGE_BYTES,
    SLICE_BYTES,
    TOO_LARGE,
    TOO_MUCH_NOISE,
    Pace,
    excess,
)
from agent.mcp.traffic import Traffic
from sandbox.processes import hand_over, start_process

log = logging.getLogger(__name__)

PIPE_BYTES = 1 << 16  # what is read ahead
EXIT_SECONDS = 2.0  # after the end of its input, and again after SIGTERM
POLL_SECONDS = 0.01


class MessageLines:
    """The messages that the process writes, as a stream of the SDK."""

    def __init__(self, reader: asyncio.StreamReader, traffic: Traffic) -> None:
        self._reader, self._traffic = reader, traffic
        self._pace = Pace()
        self._lines: list[bytes] = []  # whole ones, the next one last
        self._parts: list[bytes] = []  # of the line that has begun
        self._size = 0
        self._odd = self._odd_bytes = 0  # lines that are no message

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        while True:
            while not self._lines:
                await self._read()
            if message := await self._parse(self._lines.pop()):
                return message

    async def aclose(self) -> None:
        """Read no more messages."""
        self._lines.clear()

    async def _read(self) -> None:
        """Read the next piece. Raises StopAsyncIteration at the end, or at a line that is too long."""
        piece = await self._reader.read(SLICE_BYTES)
        await self._pace.take(len(piece) / BYTES_PER_LINE)
        if not piece:
            raise StopAsyncIteration
        first, *others = piece.split(b"\n")
        self._parts.append(first)
        self._size += len(first)
        if self._size > MAX_MESSAGE_BYTES:
            self._parts.clear()
            self._traffic.fault = TOO_LARGE
            raise StopAsyncIteration
        if others:
            whole = [b"".join(self._parts), *others[:-1]]
            self._parts, self._size = [others[-1]], len(others[-1])
            self._lines = whole[::-1]

    async def _parse(self, line: bytes) -> SessionMessage | None:
        await self._pace.take(1)
        if fault := await excess(line, self._pace):
            self._traffic.fault = fault
            raise StopAsyncIteration
        if not line.strip():
            return None
        try:
            message = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            self._odd += 1
            self._odd_bytes += len(line) + LINE_COST_BYTES
            if self._odd <= MAX_LOGGED_LINES:
                log.warning("mcp.odd_line line=%r", line[:200])
            if self._odd_bytes <= MAX_STRANGE_BYTES:
                return None
            self._traffic.fault = TOO_MUCH_NOISE
            raise StopAsyncIteration from None
        self._odd_bytes = 0
        return message


class MessageWriter:
    """The messages to the process, as a stream of the SDK."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def send(self, item: SessionMessage, /) -> None:
        """Write one line. Waits while the process does not read. Raises BrokenResourceError when it has ended."""
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        try:
            await self._writer.drain()
            self._writer.write(line)
            await self._writer.drain()
        except (OSError, RuntimeError) as error:
            raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        """Close the input of the process, which asks it to end."""
        self._writer.close()


@asynccontextmanager
async def stdio_transport(
    parameters: dict[str, Any], errors: Any, traffic: Traffic
) -> AsyncIterator[tuple[MessageLines, MessageWriter]]:
    """Start the process, and end it and its children. Raises OSError if it cannot start."""
    loop = asyncio.get_running_loop()
    reading, writing = os.pipe()
    reader = asyncio.StreamReader(limit=PIPE_BYTES)
    pipe = hand_over(os.fdopen(reading, "rb", 0))
    output, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        try:
            process = await start_process(
                parameters["command"],
                *parameters["args"],
                stdin=asyncio.subprocess.PIPE,
                stdout=writing,
                stderr=errors,
                env=get_default_environment() | parameters["env"],
                cwd=parameters["cwd"],
                start_new_session=True,
            )
        finally:
            os.close(writing)
        if process.stdin is None:
            raise OSError("the process has no input")  # never: it was asked for
        try:
            yield MessageLines(reader, traffic), MessageWriter(process.stdin)
        finally:
            patience = 0.0 if traffic.fault else EXIT_SECONDS
            ending = asyncio.create_task(_end(process, reader, patience), name="mcp end of a process")
            await asyncio.shield(ending)
    finally:
        output.close()


async def _end(process: asyncio.subprocess.Process, reader: asyncio.StreamReader, patience: float) -> None:
    """Close the input, wait, then end the whole process group. What it still writes is thrown away meanwhile."""
    if process.stdin:
        process.stdin.close()
    draining = asyncio.create_task(_drain(reader), name="mcp last output")
    try:
        for sent in (signal.SIGTERM, signal.SIGKILL):
            if await _has_ended(process, patience):
                break
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, sent)
        if not await _has_ended(process, EXIT_SECONDS):
            log.warning("mcp.process_left pid=%d", process.pid)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        draining.cancel()
        if process.stdin and process.stdin.transport.get_write_buffer_size():
            process.stdin.transport.abort()  # nobody will read it
        with suppress(TimeoutError):
            async with asyncio.timeout(EXIT_SECONDS):
                await process.wait()  # asyncio closes its part when the pipe is closed, too


async def _has_ended(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Return whether it ends in this time. `wait` would wait for whoever else has its pipes, too."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while process.returncode is None and loop.time() < until:  # noqa: ASYNC110  asyncio sets no event for it
        await asyncio.sleep(POLL_SECONDS)
    return process.returncode is not None


async def _drain(reader: asyncio.StreamReader) -> None:
    while await reader.read(PIPE_BYTES):
        pass
