"""Open the configured database: SQLite's file in `data_dir`, or PostgreSQL, whose driver is imported only then."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bot.config.schema import Config
from bot.storage.audit_check import read_only
from bot.storage.database import Database, Execute, StorageError
from bot.storage.migrate import DatabaseFault, prepare_databases, schema_revision
from catalogue import N_

if TYPE_CHECKING:
    from bot.storage.postgres_session import Target

FILE = "fawn.db"
COMMAND_SECONDS = 2.0  # that a command waits for a service that ends
ENDED_SECONDS = 15.0  # that a service waits for the end of one whose connection was lost


class NoStore(DatabaseFault):
    """There is no database yet, or it is somewhere else."""

    @classmethod
    def of(cls, config: Config) -> NoStore:
        """Return the fault for a configuration."""
        if config.database.url:
            text = N_("{where} contains no tables of Fawn: start the service once, or check `database`")
            return cls(text, where=config.database.shown)
        text = N_("{data_dir} does not contain a database: check `data_dir` or --config")
        return cls(text, data_dir=config.data_dir)


def open_store(config: Config, *, patience: float = COMMAND_SECONDS) -> Database:
    """Return the database, to be entered. Its beginning raises StorageError, DatabaseInUse and DatabaseFault."""
    if not config.database.url:
        return Database(config.data_dir / FILE)
    from bot.storage.postgres import DatabaseServer, PostgresDatabase

    return PostgresDatabase(DatabaseServer(_target(config), _session_target(config), owner_seconds=patience))


def prepare_store(config: Config) -> Path | None:
    """Upgrade SQLite's file; return the backup, if it made one. PostgreSQL is upgraded when it is opened.

    Raises DatabaseFault. It blocks.
    """
    return None if config.database.url else prepare_databases(config.data_dir)


def has_store(config: Config) -> bool:
    """Return whether there is a database with tables. Raises DatabaseFault where it cannot be asked. It blocks."""
    return bool(store_revision(config)) if config.database.url else (config.data_dir / FILE).exists()


def store_revision(config: Config) -> str:
    """Return the revision of the tables, "" where there are none. Raises DatabaseFault. It blocks."""
    if not config.database.url:
        return schema_revision(config.data_dir / FILE)
    from bot.storage.postgres_schema import read_revision

    with read_store(config, snapshot=False) as execute:
        return read_revision(execute)


@contextmanager
def read_store(config: Config, *, snapshot: bool) -> Iterator[Execute]:
    """Open the database to be read beside a service. A `snapshot` shows one state of it all the time.

    Raises DatabaseFault where PostgreSQL cannot be asked.
    """
    if not config.database.url:
        with read_only(config.data_dir / FILE, snapshot=snapshot) as execute:
            yield execute
        return
    from bot.storage.postgres_session import reading

    try:
        with reading(_session_target(config) or _target(config), snapshot=snapshot) as execute:
            yield execute
    except StorageError as error:
        raise store_fault(config, error) from error


def store_fault(config: Config, error: Exception) -> DatabaseFault:
    """Return what is wrong with the database, in words."""
    if not config.database.url or isinstance(error, sqlite3.Error | OSError):
        return DatabaseFault.from_error(error)
    text = N_("the PostgreSQL database {where} cannot be used: {error}")
    return DatabaseFault(text, where=config.database.shown, error=" ".join(str(error).split()))


def _target(config: Config) -> Target:
    return config.database.connection()


def _session_target(config: Config) -> Target:
    return config.database.connection(config.database.session_url) if config.database.session_url else ""
