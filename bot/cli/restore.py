"""`fawn restore`: put the data of a backup into an empty data_dir."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from bot.admin.restore import Restored, RestoreRefused, restore_backup
from bot.base.exit_codes import FAULT, OK, TAKEN, fail
from bot.base.stored_secrets import KeyUnknown, sealer_of
from bot.cli.command import ConfiguredCommand
from bot.cli.progress import add_quiet, shown
from bot.config.schema import Config
from bot.database.data_lock import DatabaseInUse, DataDirLocked, DataLock
from bot.database.migrate import DatabaseFault
from bot.database.progress import CopyProgress
from bot.service.store import PostgresCopies
from catalogue import _, ngettext
from sandbox.disk.unpacking import MAX_ENTRIES, UnpackRefused


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help=_("the .tar.gz file that `fawn backup` wrote"))
    text = _("refuse a file with more entries than this; default: {n:,}", n=MAX_ENTRIES)
    parser.add_argument("--entries", type=int, default=MAX_ENTRIES, metavar="N", help=text)
    add_quiet(parser)


def _run(arguments: argparse.Namespace, config: Config) -> int:
    server = PostgresCopies(config) if config.database.url else None
    try:
        sealer = sealer_of(config)
        config.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        progress = CopyProgress()
        with DataLock(config.data_dir), shown(progress, quiet=arguments.quiet):
            restored = asyncio.run(
                restore_backup(
                    *(Path(arguments.file), config.data_dir, Path(config.skills.custom), sealer, arguments.entries),
                    server=server,
                    progress=progress,
                )
            )
    except (DataDirLocked, DatabaseInUse) as error:
        return fail(error, TAKEN)
    except (KeyUnknown, RestoreRefused, UnpackRefused, DatabaseFault, OSError) as error:
        return fail(error, FAULT)
    print(_describe(config, restored))
    return OK


def _describe(config: Config, restored: Restored) -> str:
    said = ngettext(
        "Restored {n:,} file into {data_dir}. Start Fawn now: it delivers what was left to deliver.",
        "Restored {n:,} files into {data_dir}. Start Fawn now: it delivers what was left to deliver.",
        restored.files,
        data_dir=config.data_dir,
    )
    if restored.skills:
        stay = _(
            "Your own skills are in {found}, because {wanted} is in use: move them there yourself.",
            found=restored.skills,
            wanted=config.skills.custom,
        )
        said = f"{said}\n{stay}"
    return said


COMMAND = ConfiguredCommand(_run, _add_arguments)
