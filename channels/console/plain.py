"""The plain view for pipes and files: input and output by lines."""

from __future__ import annotations

import asyncio
import codecs
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

from agent.blocks import Block, Notice, Plan, Step
from catalogue import _
from channels.base import ChatGone, OutgoingFile, parse_command_text
from channels.console.files import describe_download, save_download, short_path
from channels.console.view import ICONS, ConsoleView, FinalReply, Key, Look, Typed, one_line, strip_controls
from channels.shared.background import BackgroundTasks
from channels.shared.reply_layout import step_title

_GATHER_SECONDS = 0.05  # lines that arrive in this time are one message
_MAX_MESSAGE_CHARS = 100_000
_MAX_QUEUED_LINES = 1000  # before reading pauses


class PlainView(ConsoleView):
    """Read and write plain lines, for pipes and files. It sends no files: what a pipe brings may name any path."""

    is_interactive = False

    def __init__(self, source: int | None, target: int | None, downloads: Path) -> None:
        self._source, self._target = source, target
        self._downloads = downloads
        self._lines: deque[str] = deque()
        self._changed = asyncio.Event()
        self._ended = source is None
        self._reading = False
        self._may_read = threading.Event()  # else the reading thread waits
        self._ready: deque[str] = deque()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._partial = ""
        self._written: dict[int, set[str]] = {}  # progress lines by reply
        self._out: asyncio.Queue[tuple[str, asyncio.Future[None] | None]] = asyncio.Queue()
        self._background = BackgroundTasks()

    async def __aenter__(self) -> Self:
        self._background.start(self._write_queued(), "console-writer")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._background.cancel()

    # input

    async def read(self) -> Typed | Key | None:
        if not self._reading:
            self._reading = True
            self._start_reading()
        while not self._ready:
            if not await self._gather_lines():
                return None
        return Typed(self._ready.popleft())

    def _start_reading(self) -> None:
        """Read in a thread, because the event loop cannot wait for a file, and a blocking read cannot be cancelled."""
        self._may_read.set()
        loop, source, may_read = asyncio.get_running_loop(), self._source, self._may_read

        def read_all() -> None:
            data = b"?"
            while data and source is not None:
                may_read.wait()
                try:
                    data = os.read(source, 65_536)
                except OSError:
                    data = b""
                try:
                    loop.call_soon_threadsafe(self._receive_bytes, data)
                except RuntimeError:  # the loop is closed
                    return

        threading.Thread(target=read_all, name="console-reader", daemon=True).start()

    def _receive_bytes(self, data: bytes) -> None:
        *lines, self._partial = (self._partial + self._decoder.decode(data, final=not data)).split("\n")
        if not data:
            self._ended = True
            lines += [self._partial] if self._partial else []
        self._lines.extend(lines)
        if len(self._lines) > _MAX_QUEUED_LINES:
            self._may_read.clear()
        self._changed.set()

    async def _gather_lines(self) -> bool:
        """Wait for a line and gather those that follow at once. Returns False at the end of the input."""
        lines: list[str] = []
        length = 0
        while length < _MAX_MESSAGE_CHARS:
            if not self._lines:
                if self._ended:
                    break
                self._changed.clear()
                try:
                    async with asyncio.timeout(_GATHER_SECONDS if lines else None):
                        await self._changed.wait()
                except TimeoutError:
                    break
                continue
            lines.append(self._lines.popleft())
            length += len(lines[-1]) + 1
        self._may_read.set()
        self._ready.extend(group_messages(lines))
        return bool(lines) or not self._ended

    # output

    def show(self, reply: int, block: Block) -> None:
        written = self._written.setdefault(reply, set())
        for line in progress_lines(block):
            if line not in written:
                written.add(line)
                self._out.put_nowait((line, None))

    def drop(self, reply: int) -> None:
        self._written.pop(reply, None)

    async def write_reply(self, final: FinalReply) -> None:
        await self.write("\n\n".join([*final.earlier, final.text]))

    async def save_file(self, file: OutgoingFile) -> str:
        path = await asyncio.to_thread(save_download, file, self._downloads)
        await self.write(describe_download(file, short_path(path)))
        return str(path)

    async def write(self, text: str, look: Look = Look.PLAIN) -> None:
        if self._target is None:
            raise ChatGone(_("there is no output to write to"))
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._out.put_nowait((strip_controls(text), done))
        await done

    async def _write_queued(self) -> None:
        """Write the queued lines. A broken pipe ends the input too, because its answers would be lost."""
        while True:
            text, done = await self._out.get()
            try:
                await asyncio.to_thread(self._write_all, f"{text}\n".encode("utf-8", "replace"))
            except OSError:
                self._target, self._ended = None, True
                self._lines.clear()
                self._changed.set()
            if done and not done.done():
                if self._target is None:
                    done.set_exception(ChatGone(_("the output was closed")))
                else:
                    done.set_result(None)

    def _write_all(self, data: bytes) -> None:
        while data and self._target is not None:
            data = data[os.write(self._target, data) :]


def group_messages(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines as messages: each command is one, the text between commands is one."""
    text: list[str] = []
    for line in lines:
        if parse_command_text(line) is None:
            text.append(line)
            continue
        yield from _joined(text)
        yield line
        text = []
    yield from _joined(text)


def _joined(lines: Sequence[str]) -> Iterator[str]:
    """Yield lines as one text; blank ones are none."""
    if text := "\n".join(lines).strip():
        yield text


def progress_lines(block: Block) -> Iterator[str]:
    """Yield a block as progress lines; a block of the answer has none."""
    match block:
        case Step(parent=""):
            detail = f": {block.detail}" if block.detail and block.state in ("failed", "denied") else ""
            if block.state != "done":
                icon = "·" if block.state == "running" else ICONS[block.state]
                yield one_line(f"{icon} {step_title(block)}{detail}")
        case Plan():
            yield from (one_line(f"· {ICONS[item.state]} {item.title}") for item in block.items)
        case Notice():
            yield one_line(f"· {block.text}")
