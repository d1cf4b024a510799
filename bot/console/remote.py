"""A console of a service elsewhere: `fawn chat --url` and `fawn ask --url` speak its HTTP API with a key."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import aiohttp

from agent.blocks import Step
from bot.config.loader import read_service_key
from catalogue import N_, _
from channels import console
from channels.base import OutgoingFile, parse_command_text
from channels.console.ask import AskView
from channels.console.session import LEAVE_COMMANDS
from channels.console.view import ConsoleView, FinalReply, Key, Look, Typed
from fawn.client import Fawn, FawnError, Json, read_blocks

NOT_REACHED = N_("I cannot reach {url}: {why}")
CONNECTED = N_("Connected to {url}. Leaving does not stop anything there.")
NO_KEY = N_("set FAWN_KEY to the key of that service, or FAWN_KEY_FILE to its file: `fawn key add` makes one there")
BAD_KEY_FILE = N_("the file that FAWN_KEY_FILE names cannot be read: {reason}")
STOP_SECONDS = 5.0  # in which a request is stopped after Ctrl-C
LOST_ERRORS = (aiohttp.ClientError, OSError)


class RemoteError(Exception):
    """The service cannot be asked; the text says why."""


@dataclass(slots=True)
class RemoteSession:
    """One view on one thread of a service elsewhere."""

    fawn: Fawn
    view: ConsoleView
    thread: str
    folder: Path  # of the files that the person sends
    _steps: dict[int, dict[str, Step]] = field(default_factory=dict)
    _idle: asyncio.Event = field(default_factory=asyncio.Event)
    _has_request: bool = False  # that was sent, and has not ended
    _commands: int = 0  # that were sent, and have no answer

    async def converse(self) -> None:
        """Send what the person types and show what happens, until they leave. Raises FawnError."""
        opened = asyncio.Event()
        following = asyncio.create_task(self._follow(opened.set), name="remote events")
        talking = asyncio.create_task(self._talk(opened), name="remote input")
        try:
            await asyncio.wait({following, talking}, return_when=asyncio.FIRST_COMPLETED)
            for task in (following, talking):
                if task.done():
                    task.result()
        except asyncio.CancelledError:  # Ctrl-C where nobody types: what was asked for is no longer wanted
            if self.fawn.run and not self._idle.is_set():
                with suppress(TimeoutError, FawnError, *LOST_ERRORS):
                    async with asyncio.timeout(STOP_SECONDS):
                        await self.fawn.stop()
            raise
        finally:
            following.cancel()
            talking.cancel()

    async def _talk(self, opened: asyncio.Event) -> None:
        await opened.wait()
        while (event := await self.view.read()) is not None:
            if event is Key.INTERRUPT:
                if self._idle.is_set() or not self.fawn.run:
                    return
                await self.fawn.stop()
            elif isinstance(event, Typed):
                if event.text.strip() in LEAVE_COMMANDS:
                    return
                await self._send(event)
        if self.view.is_interactive:
            return
        overdue = asyncio.create_task(self.view.is_overdue())
        ended = asyncio.create_task(self._idle.wait())
        await asyncio.wait({overdue, ended}, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done() and overdue.result():
            await self.fawn.stop()
        await ended
        overdue.cancel()

    async def _send(self, typed: Typed) -> None:
        self._idle.clear()
        command = None if typed.files else parse_command_text(typed.text)
        try:
            if command is not None:
                self._commands += 1
                await self.fawn.command(self.thread, typed.text.strip())
            else:
                files = [(each.name, self.folder / each.ref) for each in typed.files]
                self._has_request = True
                await self.fawn.post(self.thread, typed.text, files)
                self.view.set_busy(True)
        except FawnError as error:
            if error.status == 401 or not self.view.is_interactive:
                raise
            await self.view.write(str(error), Look.FAULT)

    async def _follow(self, opened: Callable[[], None]) -> None:
        async for name, data in self.fawn.events(self.thread, opened):
            run = data.get("run") or 0
            for block in read_blocks(name, data):
                if isinstance(block, Step) and not block.parent:
                    self._steps.setdefault(run, {})[block.id] = block
                self.view.show(run, block)
            if name == "end":
                await self._finish(data)
            elif name == "entry" and data["run"] is None and data["kind"] == "notice":
                await self.view.write_reply(FinalReply(_with_options(data["text"], data["questions"])))
                self._commands = max(0, self._commands - 1)
                if not (self._has_request or self._commands):
                    self._idle.set()

    async def _finish(self, run: Json) -> None:
        for file in run["files"]:
            with tempfile.TemporaryDirectory() as folder:
                path = await self.fawn.download(file["url"], Path(folder) / "file")
                await self.view.save_file(OutgoingFile(path, file["name"], path.stat().st_size))
        seconds = (run["finished"] or run["started"]) - run["started"]
        text = _with_options(run["text"] or run["failure"], run["questions"])
        steps = tuple(self._steps.pop(run["id"], {}).values())
        final = FinalReply(text, run["state"], steps=steps, seconds=seconds, of_turn=True, reply=run["id"])
        await self.view.write_reply(final)
        self.view.drop(run["id"])
        self.view.set_busy(False)
        self._has_request, self._commands = False, 0  # a command may have begun the run, and has no other answer
        self._idle.set()


def _with_options(text: str, questions: Sequence[Json]) -> str:
    """Return a text with the questions below it, and their options by number."""
    parts = [text] if text else []
    for each in questions:
        parts += [each["text"]] if each["text"] not in text else []
        parts += ["\n".join(f"{number}. {option}" for number, option in enumerate(each["options"], 1))]
    return "\n\n".join(filter(None, parts))


async def talk(arguments: argparse.Namespace, view: ConsoleView, thread: str, folder: Path) -> None:
    """Connect a view with a thread of the service at `--url`. Raises RemoteError."""
    try:
        key = arguments.key or await asyncio.to_thread(read_service_key)
    except (OSError, UnicodeDecodeError) as error:
        raise RemoteError(_(BAD_KEY_FILE, reason=f"{error}")) from None
    if not key:
        raise RemoteError(_(NO_KEY))
    try:
        async with Fawn(url=arguments.url, key=key) as fawn:
            if view.is_interactive:
                await view.write(_(CONNECTED, url=arguments.url), Look.HINT)
            await fawn.check()
            await RemoteSession(fawn, view, thread, folder).converse()
    except FawnError as error:
        raise RemoteError(str(error)) from None
    except (*LOST_ERRORS, ValueError) as error:  # ValueError: no address
        raise RemoteError(_(NOT_REACHED, url=arguments.url, why=error)) from None


def thread_of(place: console.ConsolePlace) -> str:
    """Return the thread that a console shows: the same one for the same name."""
    name = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "-_") else "-" for letter in place.topic
    )
    return name[:64] or f"console-{uuid4().hex[:8]}"


def ask_by_url(arguments: argparse.Namespace, view: AskView, place: console.ConsolePlace) -> int:
    """Ask the service at `--url`; print the answer and return the exit code.

    Raises RemoteError, and KeyboardInterrupt after Ctrl-C, which stops the request there.
    """

    asyncio.run(talk(arguments, view, thread_of(place), place.folder / "uploads"))
    return 0 if view.print_answer(as_json=arguments.json) else 1


def chat_by_url(arguments: argparse.Namespace, settings: console.ConsoleSettings, place: console.ConsolePlace) -> None:
    """Chat with the service at `--url` on this terminal or pipe. Raises RemoteError."""

    async def chat() -> None:
        async with console.open_view(settings, place, sys.stdin, sys.stdout) as view:
            await talk(arguments, view, thread_of(place), place.folder / "uploads")

    asyncio.run(chat())
