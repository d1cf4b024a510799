"""Consoles beside a running service: `fawn chat` attaches to it, `fawn ask` asks it, or a service of its own."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.messages import Attachment
from bot.admin.operations import ATTACH, NotRunning, open_connection
from catalogue import N_, _
from channels import console
from channels.console.ask import AskView
from channels.console.files import NotSent, stage_files, stage_text
from channels.console.view import ConsoleView, Look

if TYPE_CHECKING:  # a console that attaches does not need the service's modules
    from bot.app import App

START_SECONDS = 15.0  # in which a service that holds data_dir opens its control socket
POLL_SECONDS = 0.02
MAX_PIPED_CHARS = 50_000  # more is sent as a file
NO_ANSWER = "another process works there, but does not answer. Stop it first."
ATTACHED = N_("Attached to the running Fawn. Leaving does not stop it.")
ENDED = N_("The connection to Fawn ended, because it was stopped. What you sent last may not be answered.")


@dataclass(frozen=True, slots=True)
class Hello:
    """How a console presents itself to the service in `data_dir`."""

    data_dir: Path
    person: str
    topic: str
    interactive: bool

    async def attach(self, view: ConsoleView, connected: Callable[[], None] = lambda: None) -> bool:
        """Connect a view until it or the service ends. Returns False if the service broke off. Raises NotRunning."""
        end = time.monotonic() + START_SECONDS
        arguments = {"person": self.person, "topic": self.topic, "interactive": self.interactive}
        while True:
            try:
                reader, writer = await open_connection(self.data_dir, ATTACH, arguments)
                break
            except NotRunning:  # it is starting or stopping
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(POLL_SECONDS)
        connected()
        return await console.attach_view(view, reader, writer)


async def attach_chat(data_dir: Path, settings: console.ConsoleSettings, place: console.ConsolePlace) -> bool:
    """Chat with the running service on this terminal or pipe. Returns False if it broke off. Raises NotRunning."""
    async with console.open_view(settings, place, sys.stdin, sys.stdout) as view:
        if view.is_interactive:
            await view.write(_(ATTACHED), Look.HINT)
        hello = Hello(data_dir, console.person_name(settings), place.topic, view.is_interactive)
        if whole := await hello.attach(view):
            return whole
        await view.write(_(ENDED), Look.FAULT)
    return False


def make_ask_view(
    settings: console.ConsoleSettings, place: console.ConsolePlace, arguments: argparse.Namespace
) -> AskView:
    """Return the view of `fawn ask`: the words, with piped text and files. Raises ValueError."""
    words, piped = " ".join(arguments.words), _read_pipe()
    uploads = place.folder / "uploads"
    files: tuple[Attachment, ...] = ()
    try:
        files = stage_files(arguments.file, uploads, place.upload_mb) if arguments.file else ()
        if len(piped) > MAX_PIPED_CHARS:
            files += (stage_text(piped, "stdin.txt", uploads),)
            piped = ""
    except NotSent as error:
        raise ValueError(str(error)) from None
    text = "\n\n".join(part for part in (words.strip(), piped.strip()) if part)
    if not text and not files:
        raise ValueError("usage: fawn ask TEXT, or text from a pipe")
    return AskView(text, files, Path(settings.downloads), quiet=arguments.quiet)


def _read_pipe() -> str:
    try:
        mode = os.fstat(0).st_mode
    except OSError:  # closed
        return ""
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        return ""
    return sys.stdin.buffer.read().decode("utf-8", "replace")


async def ask(
    data_dir: Path,
    settings: console.ConsoleSettings,
    place: console.ConsolePlace,
    view: AskView,
    connected: Callable[[], None] = lambda: None,
) -> None:
    """Ask the service in `data_dir`. Raises NotRunning."""
    await Hello(data_dir, console.person_name(settings), place.topic, interactive=False).attach(view, connected)


async def ask_own_service(app: App, asking: Callable[..., Coroutine[Any, Any, None]]) -> int:
    """Run a service until it has answered, also others who attached meanwhile. Ctrl-C stops the turn. Returns 0."""
    service = asyncio.create_task(app.run(), name="service")

    def connected() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)

    task = asyncio.create_task(asking(connected), name="ask")
    await asyncio.wait({service, task}, return_when=asyncio.FIRST_COMPLETED)
    if not service.done():
        await app.stop_when_idle()
    task.cancel()
    await asyncio.wait({service, task})
    if not task.cancelled():
        task.result()
    return service.result()  # raises why it could not run
