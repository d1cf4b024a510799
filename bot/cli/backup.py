"""`fawn backup`: back up the databases and the threads' folders."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from bot.admin.operations import Answer
from bot.cli.command import ConfiguredCommand
from bot.cli.service_call import CliAction, run_action
from bot.config.schema import Config
from catalogue import _


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help=_("the .tar.gz file to create"))


def _run(arguments: argparse.Namespace, config: Config) -> int:
    file = Path(arguments.file).absolute()  # the service can have another working directory
    return asyncio.run(run_action(config, BACKUP, (str(file),)))


def _describe(_config: Config, answer: Answer) -> str:
    left = [_("LEFT OUT: {text}", text=words) for words in answer["left_out"]]
    wrote = _(
        "Wrote {file} ({size}). `fawn restore {file}` puts it into an empty data_dir.",
        file=answer["file"],
        size=_format_bytes(answer["bytes"]),
    )
    return "\n".join([wrote, *left])


def _format_bytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1_000_000 else f"{count / 1e3:.1f} KB"


BACKUP = CliAction("backup", _describe, ("file",))
COMMAND = ConfiguredCommand(_run, _add_arguments)
