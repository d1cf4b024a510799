"""`fawn logs`: show and follow the log of a run, a thread or the whole service."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator
from pathlib import Path

from agent.foreign_text import printable_text
from bot.admin.service_client import NotRunning, call_service
from bot.base.exit_codes import FAULT, NOT_RUNNING, OK, fail
from bot.cli.command import ConfiguredCommand
from bot.config.schema import Config
from catalogue import _

LOOK_SECONDS = 0.5  # between two looks while it follows


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    words = _("the number of a run, the key of a message, or the beginning of a thread's address; default: everything")
    parser.add_argument("what", metavar="RUN|KEY|THREAD", nargs="?", default="", help=words)
    words = _("go on until Ctrl-C; a run is followed until it ends anyway")
    parser.add_argument("-f", "--follow", action="store_true", help=words)


def _logs(arguments: argparse.Namespace, config: Config) -> int:
    try:
        return asyncio.run(_follow(config, arguments.what, forever=arguments.follow))
    except NotRunning as error:
        return _print_file(config.data_dir / "fawn.log", arguments.what, error)
    except KeyboardInterrupt:
        return OK


async def _follow(config: Config, what: str, *, forever: bool) -> int:
    """Print the lines that the running service remembers, and those that come. Raises NotRunning at the first."""
    after, printed = 0, 0
    while True:
        try:
            answer = await call_service(config.data_dir, "logs", {"what": what, "after": after})
        except NotRunning:
            if not after:
                raise
            return OK  # it has ended
        if "error" in answer:
            return fail(answer["error"], FAULT)
        for line in answer["lines"]:
            print(printable_text(line), flush=True)
        after, printed = answer["after"], printed + len(answer["lines"])
        if not (forever or answer["open"]):
            if printed or answer["known"]:
                return OK
            return fail(_("the log has nothing of {what} since the start of the service", what=what), FAULT)
        if not answer["lines"]:
            await asyncio.sleep(LOOK_SECONDS)


def _print_file(file: Path, what: str, error: NotRunning) -> int:
    """Print what the file of the log has, where there is one."""
    files = [each for each in (*(Path(f"{file}.{number}") for number in (3, 2, 1)), file) if each.exists()]
    if not files:
        fail(error, NOT_RUNNING)
        text = _("the log went to stderr: `journalctl -u fawn` or `docker compose logs` has it, each line with `run=`")
        return fail(text, NOT_RUNNING)
    for line in _lines_of(files, what):
        print(printable_text(line))
    return OK


def _lines_of(files: list[Path], what: str) -> Iterator[str]:
    """Yield the lines that name a run, a key or a thread, in text or JSON."""
    for file in files:
        with file.open(encoding="utf-8", errors="replace") as lines:
            yield from (line.rstrip("\n") for line in lines if not what or _names(line, what))


def _names(line: str, what: str) -> bool:
    if what.isdecimal():
        return f" run={what} " in f"{line.rstrip()} " or f'"run":"{what}"' in line
    return any(f"{mark}{what}" in line for mark in ("key=", '"key":"', "thread=", '"thread":"'))


COMMAND = ConfiguredCommand(_logs, _add_arguments)
