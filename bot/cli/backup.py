"""`fawn backup`: back up the databases and the threads' folders."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import suppress
from functools import partial
from pathlib import Path

from bot.admin.operations import Answer
from bot.cli.command import ConfiguredCommand
from bot.cli.progress import add_quiet, format_bytes, shown
from bot.cli.service_call import CliAction, run_action
from bot.config.schema import Config
from bot.database.progress import CopyProgress, Part
from catalogue import _
from sandbox.disk.archive import unfinished


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help=_("the .tar.gz file to create"))
    add_quiet(parser)


def _run(arguments: argparse.Namespace, config: Config) -> int:
    file = Path(arguments.file).absolute()  # the service can have another working directory
    progress = CopyProgress()
    with shown(progress, quiet=arguments.quiet, look=partial(_measure, progress, unfinished(file))):
        return asyncio.run(run_action(config, BACKUP, (str(file),)))


def _measure(progress: CopyProgress, partial_file: Path) -> None:
    """Read how much has been written: a running service writes it, and answers at the end."""
    with suppress(OSError):  # not begun, or in place already
        written = partial_file.stat().st_size
        if progress.part is None:
            progress.begin(Part.WRITE)
        progress.done = written


def _describe(_config: Config, answer: Answer) -> str:
    left = [_("LEFT OUT: {text}", text=words) for words in answer["left_out"]]
    wrote = _(
        "Wrote {file} ({size}). `fawn restore {file}` puts it into an empty data_dir.",
        file=answer["file"],
        size=format_bytes(answer["bytes"]),
    )
    return "\n".join([wrote, *left])


BACKUP = CliAction("backup", _describe, ("file",))
COMMAND = ConfiguredCommand(_run, _add_arguments)
