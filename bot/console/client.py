"""Consoles beside a running service: `fawn chat` attaches to it, `fawn ask` asks it, or a service of its own."""

from __future__ import annotations

import argparse
import asyncio
import os
import select
import signal
import stat
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.messages import Attachment
from bot.admin.service_client import POLL_SECONDS, START_SECONDS, NotRunning, attach_console, await_service
from bot.base.exit_codes import GAVE_WAY, INTERRUPTED, OK
from bot.config.schema import Config
from bot.database.data_lock import DataDirLocked
from catalogue import N_, _, current_language
from channels import console
from channels.console.ask import AskView
from channels.console.files import NotSent, stage_files, stage_text
from channels.console.view import ConsoleView, Look

if TYPE_CHECKING:  # a console that attaches does not need the service's modules
    from bot.main.app import App

WANTED_SECONDS = 0.2  # between two looks whether a service waits for data_dir
MAX_PIPED_CHARS = 50_000  # more is sent as a file
STOP_SECONDS = 30.0  # in which a request that took too long is stopped
RETRY_SECONDS = 0.2  # before `fawn ask` turns to the next service
STDIN = "-"  # the word of the command line that stands for it
PIPE_SECONDS = 1.0  # in which a pipe has data, or is ignored
PIPE_SILENT = N_(
    "Nothing came from the pipe in a second, so I go without it. To wait for it, add the word - (a minus)."
)
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
        """Connect a view until it or the service ends. Returns False if the service broke off.

        Raises NotRunning, and ConnectionRefusedError where it takes no console.
        """
        end = time.monotonic() + START_SECONDS
        arguments = {"person": self.person, "topic": self.topic, "interactive": self.interactive}
        while True:
            try:
                attached = await attach_console(self.data_dir, arguments)
                break
            except ConnectionRefusedError:  # as a service of another version does
                raise
            except ConnectionError as error:  # it ends
                await view.write(str(error), Look.FAULT)
                return False
            except NotRunning:  # it is starting or stopping
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(POLL_SECONDS)
        connected()
        try:
            return await console.attach_view(view, attached)
        finally:
            attached.close()


async def attach_chat(data_dir: Path, settings: console.ConsoleSettings, place: console.ConsolePlace) -> bool:
    """Chat with the running service on this terminal or pipe. Returns False if it broke off. Raises NotRunning."""
    async with console.open_view(settings, place, sys.stdin, sys.stdout) as view:
        if view.is_interactive:
            await view.write(_(ATTACHED), Look.HINT)
        hello = Hello(data_dir, console.person_name(settings), place.topic, view.is_interactive)
        try:
            if whole := await hello.attach(view):
                return whole
            await view.write(_(ENDED), Look.FAULT)
        except ConnectionRefusedError as error:
            await view.write(str(error), Look.FAULT)
    return False


def console_settings(
    config: Config, arguments: argparse.Namespace, has_terminal: bool
) -> tuple[console.ConsoleSettings, console.ConsolePlace]:
    """Return the settings of the console, and which conversation it shows: in a pipe, one of its own."""
    given = (entry.settings for entry in config.channels if entry.name == "console")
    settings = next(given, console.ConsoleSettings())
    if hasattr(arguments, "words"):
        topic = f"ask-{arguments.name or console.own_topic()}"
    else:
        own = getattr(arguments, "new", False) or not (getattr(arguments, "old", False) or has_terminal)
        topic = console.own_topic() if own else ""
    folder = config.data_dir / "console"
    return settings, console.ConsolePlace(
        folder, config.uploads.max_mb, topic, current_language(), is_demo=not config.models
    )


class AskError(Exception):
    """`fawn ask` cannot ask; the text says why."""


class ServiceSilent(AskError):
    """What holds data_dir does not answer."""


def answer_for_script(config: Config, arguments: argparse.Namespace, serve: Callable[[Any], int]) -> int:
    """Ask the running service, or one of our own that `serve` runs; print the answer and return the exit code.

    Raises AskError.
    """
    settings, place = console_settings(config, arguments, has_terminal=False)
    view = make_ask_view(settings, place, arguments)
    asking = partial(ask, config.data_dir, settings, place, view, arguments.timeout)
    while not view.ended:  # a service that is stopping accepts nothing: then the next one is asked
        try:
            code = serve(asking)
            if code not in (OK, GAVE_WAY):
                return code
        except DataDirLocked:
            code = _ask_service_there(config.data_dir, asking)
        view.go_on(elsewhere=code == GAVE_WAY)
        time.sleep(0 if view.ended else RETRY_SECONDS)
    return 0 if view.print_answer(as_json=arguments.json) else 1


def _ask_service_there(data_dir: Path, asking: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Ask the service that works on data_dir, as soon as it listens. Raises AskError."""
    try:
        if await_service(data_dir):
            asyncio.run(asking())
    except NotRunning as error:
        raise ServiceSilent(str(error)) from None
    return OK


def make_ask_view(
    settings: console.ConsoleSettings, place: console.ConsolePlace, arguments: argparse.Namespace
) -> AskView:
    """Return the view of `fawn ask`: the words, with piped text and files. Raises AskError."""
    typed = [word for word in arguments.words if word != STDIN]
    words, piped = " ".join(typed), _read_stdin(arguments.words)
    uploads = place.folder / "uploads"
    files: tuple[Attachment, ...] = ()
    try:
        files = stage_files(arguments.file, uploads, place.upload_mb) if arguments.file else ()
        if len(piped) > MAX_PIPED_CHARS:
            files += (stage_text(piped, "stdin.txt", uploads),)
            piped = ""
    except NotSent as error:
        raise AskError(str(error)) from None
    text = "\n\n".join(part for part in (words.strip(), piped.strip()) if part)
    if not text and not files:
        raise AskError(_("usage: fawn ask TEXT, or text from a pipe"))
    name = place.topic.removeprefix("ask-")
    downloads, seconds = Path(settings.downloads), arguments.timeout
    return AskView(text, files, downloads, name, seconds=seconds, quiet=arguments.quiet)


def _read_stdin(words: Sequence[str]) -> str:
    """Return all of stdin where `-` asks for it or no text was given, otherwise only that of a pipe that has data.

    The rest of a file in a shell's loop belongs to the loop.
    """
    try:
        mode = os.fstat(0).st_mode
    except OSError:  # closed
        return ""
    is_pipe = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
    if STDIN not in words:
        if not (is_pipe or (stat.S_ISREG(mode) and not words)):
            return ""
        if words and not select.select([0], [], [], PIPE_SECONDS)[0]:
            sys.stderr.write(f"{_(PIPE_SILENT)}\n")
            return ""
    return sys.stdin.buffer.read().decode("utf-8", "replace")


async def ask(
    data_dir: Path,
    settings: console.ConsoleSettings,
    place: console.ConsolePlace,
    view: AskView,
    seconds: float,
    connected: Callable[[], None] = lambda: None,
) -> None:
    """Ask the service in `data_dir`. Raises NotRunning, and AskError where it takes no console.

    After the seconds of `--timeout` (0: without end) the view has the request stopped, and waits for its end.
    """
    hello = Hello(data_dir, console.person_name(settings), place.topic, interactive=False)
    try:
        async with asyncio.timeout(seconds + STOP_SECONDS if seconds else None):
            await hello.attach(view, connected)
    except ConnectionRefusedError as error:
        raise AskError(str(error)) from None
    except TimeoutError:  # the service does not even stop it
        view.ended = view.timed_out = True


async def ask_own_service(
    app: App, asking: Callable[..., Coroutine[Any, Any, None]], is_wanted: Callable[[], bool]
) -> int:
    """Run a service until it has answered, also others who attached meanwhile. Ctrl-C stops the turn.

    Returns 0, 130 after Ctrl-C, or GAVE_WAY where a service `is_wanted` that resumes what this one has begun.
    """
    service = asyncio.create_task(app.run(), name="service")
    interrupted = False

    def interrupt() -> None:
        nonlocal interrupted
        interrupted = True
        task.cancel()

    def connected() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupt)

    task = asyncio.create_task(asking(connected), name="ask")
    leaving = asyncio.create_task(stop_when_wanted(app, is_wanted), name="leaving")
    await asyncio.wait({service, task, leaving}, return_when=asyncio.FIRST_COMPLETED)
    gives_way = leaving.done() and not task.done()
    if task.done():  # else the service has ended, or ends
        leaving = asyncio.create_task(_leave(app, leaving), name="stop")
    await asyncio.wait({service})
    for each in (task, leaving):
        each.cancel()
    outcomes = await asyncio.gather(service, task, leaving, return_exceptions=True)
    for outcome in outcomes:  # why the service could not run, before what followed from it
        if isinstance(outcome, Exception):
            raise outcome
    return INTERRUPTED if interrupted else GAVE_WAY if gives_way else service.result()


async def _leave(app: App, wanted: asyncio.Task[None]) -> None:
    """Stop a service that has answered: when it is idle, or at once where another one waits."""
    idle = asyncio.create_task(app.stop_when_idle(), name="idle")
    try:
        await asyncio.wait({idle, wanted}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in (idle, wanted):
            each.cancel()


async def stop_when_wanted(app: App, is_wanted: Callable[[], bool]) -> None:
    """Stop a command's service as SIGTERM does, as soon as a service waits for its data_dir."""
    while not is_wanted():  # noqa: ASYNC110 — another process says it, by a lock
        await asyncio.sleep(WANTED_SECONDS)
    app.stop()
