"""The commands about what is stored: `backup`, `restore`, `migrate` and `export`."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from bot.admin.engine_change import POSTGRESQL, SQLITE, change_engine
from bot.admin.operations import Answer
from bot.admin.restore import Restored, RestoreRefused, restore_backup
from bot.base.exit_codes import CONFIG, FAULT, OK, TAKEN, fail
from bot.base.stored_secrets import KeyUnknown, sealer_of
from bot.cli.command import Command, ConfiguredCommand
from bot.cli.progress import add_quiet, format_bytes, shown
from bot.cli.service_call import CliAction, OperationFailed, ask_service, run_action
from bot.config.database import URL_EXAMPLE
from bot.config.schema import Config
from bot.database.data_lock import DatabaseInUse, DataDirLocked, DataLock
from bot.database.migrate import DatabaseFault
from bot.database.progress import CopyProgress, Part
from bot.database.row_copy import Copied
from bot.service.store import FILE, PostgresCopies
from bot.status.transcript_format import render_entry
from catalogue import N_, _, ngettext
from sandbox.disk.archive import unfinished
from sandbox.disk.unpacking import MAX_ENTRIES, UnpackRefused

# ------------------------------------------------------------ fawn backup


def _add_backup_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help=_("the .tar.gz file to create"))
    add_quiet(parser)


def _backup(arguments: argparse.Namespace, config: Config) -> int:
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


def _describe_backup(_config: Config, answer: Answer) -> str:
    left = [_("LEFT OUT: {text}", text=words) for words in answer["left_out"]]
    wrote = _(
        "Wrote {file} ({size}). `fawn restore {file}` puts it into an empty data_dir.",
        file=answer["file"],
        size=format_bytes(answer["bytes"]),
    )
    return "\n".join([wrote, *left])


BACKUP = CliAction("backup", _describe_backup, ("file",))


# ------------------------------------------------------------ fawn restore


def _add_restore_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help=_("the .tar.gz file that `fawn backup` wrote"))
    text = _("refuse a file with more entries than this; default: {n:,}", n=MAX_ENTRIES)
    parser.add_argument("--entries", type=int, default=MAX_ENTRIES, metavar="N", help=text)
    add_quiet(parser)


def _restore(arguments: argparse.Namespace, config: Config) -> int:
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
    print(_describe_restore(config, restored))
    return OK


def _describe_restore(config: Config, restored: Restored) -> str:
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


# ------------------------------------------------------------ fawn migrate


def _add_migrate_arguments(parser: argparse.ArgumentParser) -> None:
    text = _("postgresql: from fawn.db in data_dir into the database of the section `database`; sqlite: the way back")
    parser.add_argument("--to", required=True, metavar="ENGINE", help=text)
    add_quiet(parser)


def _migrate(arguments: argparse.Namespace, config: Config) -> int:
    engine = arguments.to.strip().lower()
    if engine not in (POSTGRESQL, SQLITE):  # not repeated: it may be a URL with a password
        text = _(
            "--to takes {engines}, and no address: everybody on this machine can read a command line. Set"
            " `database.url` and `database.password` in the configuration",
            engines=f"{POSTGRESQL}, {SQLITE}",
        )
        return fail(text, CONFIG)
    if not config.database.url:
        text = _("the configuration names no PostgreSQL database: below `database`, {example}", example=_(URL_EXAMPLE))
        return fail(text, CONFIG)
    try:
        config.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        progress = CopyProgress()
        with DataLock(config.data_dir), shown(progress, quiet=arguments.quiet):
            copied = change_engine(config, engine, progress)
    except (DataDirLocked, DatabaseInUse) as error:
        return fail(error, TAKEN)
    except (DatabaseFault, OSError) as error:
        return fail(error, FAULT)
    print("\n".join(_describe_migrate(config, engine, copied)))
    return OK


def _describe_migrate(config: Config, engine: str, copied: Copied) -> list[str]:
    file, server = config.data_dir / FILE, config.database.shown
    said = [
        _(
            "Copied {rows:,} rows of {tables} tables; their numbers and the audit are the same on both sides.",
            rows=copied.rows,
            tables=len(copied.counts),
        )
    ]
    if copied.replaced:
        said.append(
            ngettext(
                "{n:,} text had a NUL or bytes that are no text: U+FFFD (�) stands for them.",
                "{n:,} texts had a NUL or bytes that are no text: U+FFFD (�) stands for them.",
                copied.replaced,
            )
        )
    if copied.audit and copied.audit.fault:
        said.append(_("The audit was not valid before, and is copied as it was: {fault}.", fault=copied.audit.fault))
    if engine == POSTGRESQL:
        said.append(_("Start Fawn now: it works on {where}.", where=server))
    else:
        said.append(_("Remove the section `database`, and start Fawn: it works on {where}.", where=file))
    old = file if engine == POSTGRESQL else server
    text = N_("{source} is as it was: delete it when you no longer need it, since nobody is forgotten there.")
    return [*said, _(text, source=old)]


# ------------------------------------------------------------ fawn export


def _add_export_arguments(parser: argparse.ArgumentParser) -> None:
    words = _("its address, as the log shows it, or the beginning of it")
    parser.add_argument("thread", metavar="THREAD", help=words)
    words = _("Markdown (default) or JSON lines")
    parser.add_argument("--format", choices=("md", "jsonl"), default="md", help=words)
    words = _("file to write; default: standard output")
    parser.add_argument("-o", dest="file", metavar="FILE", type=Path, help=words)


def _export(arguments: argparse.Namespace, config: Config) -> int:
    try:
        text = asyncio.run(_render_thread(config, arguments.thread, arguments.format))
        if arguments.file is None:
            print(text, end="")
        else:
            with open(arguments.file, "w", encoding="utf-8", opener=partial(os.open, mode=0o600)) as file:
                file.write(text)
    except (OperationFailed, OSError) as error:
        return fail(error, FAULT)
    return OK


async def _render_thread(config: Config, thread: str, form: str) -> str:
    """Return the transcript of a thread as Markdown (`form` md) or JSON lines. Raises OperationFailed."""
    arguments: dict[str, Any] = {"thread": thread, "after": 0}
    chunks: list[str] = []
    conversation = ""
    while entries := (answer := await ask_service(config, "export", arguments))["entries"]:
        for entry in entries:
            if form == "md" and entry["conversation"] != conversation:
                conversation = entry["conversation"]
                chunks.append(f"## {entry['title'] or conversation}\n\n")
            chunks.append(render_entry(entry, form))
        arguments = {"thread": answer["thread"], "after": entries[-1]["id"]}
    return "".join([f"# {answer['thread']}\n\n" * (form == "md"), *chunks])


COMMANDS: Mapping[str, Command] = {
    "backup": ConfiguredCommand(_backup, _add_backup_arguments),
    "restore": ConfiguredCommand(_restore, _add_restore_arguments),
    "migrate": ConfiguredCommand(_migrate, _add_migrate_arguments),
    "export": ConfiguredCommand(_export, _add_export_arguments, audited=lambda _arguments: "export"),
}
