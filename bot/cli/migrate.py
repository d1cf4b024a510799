"""`fawn migrate`: move from SQLite to PostgreSQL, or back."""

from __future__ import annotations

import argparse

from bot.admin.engine_change import POSTGRESQL, SQLITE, change_engine
from bot.base.exit_codes import CONFIG, FAULT, OK, TAKEN, fail
from bot.cli.command import ConfiguredCommand
from bot.cli.progress import add_quiet, shown
from bot.config.database import URL_EXAMPLE
from bot.config.schema import Config
from bot.database.data_lock import DatabaseInUse, DataDirLocked, DataLock
from bot.database.migrate import DatabaseFault
from bot.database.progress import CopyProgress
from bot.database.row_copy import Copied
from bot.service.store import FILE
from catalogue import N_, _, ngettext


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    text = _("postgresql: from fawn.db in data_dir into the database of the section `database`; sqlite: the way back")
    parser.add_argument("--to", required=True, metavar="ENGINE", help=text)
    add_quiet(parser)


def _run(arguments: argparse.Namespace, config: Config) -> int:
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
    print("\n".join(_describe(config, engine, copied)))
    return OK


def _describe(config: Config, engine: str, copied: Copied) -> list[str]:
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


COMMAND = ConfiguredCommand(_run, _add_arguments)
