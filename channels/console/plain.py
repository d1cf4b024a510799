"""The plain view for pipes and files: lines in, lines out."""

from __future__ import annotations

import asyncio
import codecs
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self

from agent.blocks import Block, Notice, Plan, Step, View
from channels.base import ChatGone, parse_command_text
from channels.console.view import ICONS, Key, one_line, strip_controls

_GATHER_SECONDS = 0.05  # seconds: lines that arrive so close are one message
_MAX_MESSAGE_CHARS = 100_000  # characters after which a message ends anyway
_MAX_QUEUED_LINES = 1000  # lines read ahead of what was taken


class PlainView:
    """Plain lines in and out, for pipes and files."""

    def __init__(self, source: int | None, target: int | None) -> None:
        self._source, self._target = source, target
        self._lines: deque[str] = deque()
        self._news = asyncio.Event()
        self._ended = source is None
        self._reading = False
        self._room = threading.Event()  # the reading thread waits while it is not set
        self._ready: deque[str] = deque()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._partial = ""
        self._said: dict[int, set[str]] = {}  # id of a view → its progress lines so far
        self._out: asyncio.Queue[tuple[str, asyncio.Future[None] | None]] = asyncio.Queue()
        self._writer: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._writer = asyncio.create_task(self._write_queued(), name="console-writer")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer:
            self._writer.cancel()
            await asyncio.wait([self._writer])

    # in

    async def read(self) -> str | Key | None:
        if not self._reading:
            self._reading = True
            self._start_reading()
        while not self._ready:
            if not await self._gather_lines():
                return None
        return self._ready.popleft()

    def _start_reading(self) -> None:
        """Read in a thread: a regular file cannot be waited for, a blocking read cannot be cancelled."""
        self._room.set()
        loop, source, room = asyncio.get_running_loop(), self._source, self._room

        def pump() -> None:
            data = b"?"
            while data and source is not None:
                room.wait()
                try:
                    data = os.read(source, 65_536)
                except OSError:
                    data = b""
                try:
                    loop.call_soon_threadsafe(self._receive_bytes, data)
                except RuntimeError:  # the loop is closed: nobody reads any more
                    return

        threading.Thread(target=pump, name="console-reader", daemon=True).start()

    def _receive_bytes(self, data: bytes) -> None:
        *lines, self._partial = (self._partial + self._decoder.decode(data, final=not data)).split("\n")
        if not data:
            self._ended = True
            lines += [self._partial] if self._partial else []
        self._lines.extend(lines)
        if len(self._lines) > _MAX_QUEUED_LINES:
            self._room.clear()
        self._news.set()

    async def _gather_lines(self) -> bool:
        """Wait for a line and take those that come with it. False at the end."""
        lines: list[str] = []
        length = 0
        while length < _MAX_MESSAGE_CHARS:
            if not self._lines:
                if self._ended:
                    break
                self._news.clear()
                try:
                    async with asyncio.timeout(_GATHER_SECONDS if lines else None):
                        await self._news.wait()
                except TimeoutError:
                    break
                continue
            lines.append(self._lines.popleft())
            length += len(lines[-1]) + 1
        self._room.set()
        self._ready.extend(group_messages(lines))
        return bool(lines) or not self._ended

    # out

    def show(self, view: View, block: Block) -> None:
        said = self._said.setdefault(id(view), set())
        for line in progress_lines(block):
            if line not in said:
                said.add(line)
                self._out.put_nowait((line, None))

    def drop(self, view: View) -> None:
        self._said.pop(id(view), None)

    def set_busy(self, working: bool) -> None:
        """Nothing to see: a pipe shows what happened, not that something will."""

    def set_completions(self, commands: Sequence[tuple[str, str]]) -> None:
        """Nobody types here."""

    async def write(self, text: str, *, markdown: bool = False) -> None:
        if self._target is None:
            raise ChatGone("there is no output to write to")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._out.put_nowait((strip_controls(text), done))
        await done

    async def _write_queued(self) -> None:
        """Write line after line; a broken pipe ends the input too, because nobody would see the answers."""
        while True:
            text, done = await self._out.get()
            try:
                await asyncio.to_thread(self._enqueue, f"{text}\n".encode("utf-8", "replace"))
            except OSError:
                self._target, self._ended = None, True
                self._lines.clear()
                self._news.set()
            if done and not done.done():
                if self._target is None:
                    done.set_exception(ChatGone("nobody reads the output any more"))
                else:
                    done.set_result(None)

    def _enqueue(self, data: bytes) -> None:
        while data and self._target is not None:
            data = data[os.write(self._target, data) :]


def group_messages(lines: Iterable[str]) -> Iterator[str]:
    """Lines as messages: a command is one of its own, the text between commands is one."""
    text: list[str] = []
    for line in lines:
        if parse_command_text(line) is None:
            text.append(line)
            continue
        yield "\n".join(text).strip()
        yield line
        text = []
    yield "\n".join(text).strip()


def progress_lines(block: Block) -> Iterator[str]:
    """A block as progress lines; what is an answer, or comes back with it, has none."""
    match block:
        case Step():
            detail = f": {block.detail}" if block.detail and block.state == "failed" else ""
            if block.state in ("running", "failed", "stopped"):
                icon = "·" if block.state == "running" else ICONS[block.state]
                yield one_line(f"{icon} {block.title}{detail}")
        case Plan():
            yield from (one_line(f"· {ICONS[item.state]} {item.title}") for item in block.items)
        case Notice():
            yield one_line(f"· {block.text}")
