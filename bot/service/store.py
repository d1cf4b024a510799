"""Open the configured database: SQLite's file in `data_dir`, or PostgreSQL, whose driver is imported only then."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bot.config.schema import Config
from bot.database.audit_check import ChainReport, read_only, verify_chain
from bot.database.database import Database, Execute, StorageError
from bot.database.migrate import RESTORING, DatabaseFault, InterruptedRestore, prepare_databases, schema_revision
from bot.database.progress import CopyProgress
from bot.database.row_copy import Copied, Record
from bot.service.audit_upkeep import pruning_rules
from catalogue import N_

if TYPE_CHECKING:
    from bot.database.postgres_session import Target

FILE = "fawn.db"
COMMAND_SECONDS = 2.0  # that a command waits for a service that ends
COPY_SECONDS = 5.0  # that a copy waits for one
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


def open_store(config: Config, *, patience: float = COMMAND_SECONDS, shared: bool = False) -> Database:
    """Return the database, to be entered; `shared` with other services, where the configuration has several.

    Its beginning raises StorageError, DatabaseInUse and DatabaseFault.
    """
    if not config.database.url:
        return Database(config.data_dir / FILE)
    from bot.database.postgres import DatabaseServer, PostgresDatabase

    server = DatabaseServer(
        *(_target(config), _session_target(config)),
        owner_seconds=patience,
        no_tables=_why_no_tables(config),
        shared=shared and config.database.replicas,
    )
    return PostgresDatabase(server)


def _why_no_tables(config: Config) -> DatabaseFault | None:
    """Return why PostgreSQL must not begin with nothing: what it lacks is in `data_dir`."""
    if (config.data_dir / RESTORING).exists():
        return InterruptedRestore(config.data_dir)
    if (config.data_dir / FILE).exists():
        text = N_(
            "the PostgreSQL database {where} is empty, and everything so far is in {file}: copy it with `fawn migrate"
            " --to postgresql`, or move the file away to begin with nothing"
        )
        return DatabaseFault(text, where=config.database.shown, file=config.data_dir / FILE)
    return None


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
    from bot.database.postgres_schema import read_revision

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
    from bot.database.postgres_session import reading

    try:
        with reading(_session_target(config) or _target(config), snapshot=snapshot) as execute:
            yield execute
    except StorageError as error:
        raise store_fault(config, error) from error


@contextmanager
def _faults_of(config: Config) -> Iterator[None]:
    """What a copy meets becomes DatabaseFault."""
    try:
        yield
    except (StorageError, sqlite3.Error, OSError) as error:
        raise store_fault(config, error) from error


@dataclass(frozen=True, slots=True)
class PostgresCopies:
    """Copies between the configured PostgreSQL database and SQLite files. All raise DatabaseFault, and block."""

    config: Config

    def check_empty(self) -> None:
        """Raises also where the database is not empty."""
        from bot.database.postgres_copy import check_empty

        with _faults_of(self.config):
            check_empty(self._server)

    def fill(self, file: Path, record: Record | None = None, progress: CopyProgress | None = None) -> Copied:
        """Fill the database, which is empty, with the rows of a file: all of them, or none. Raises DatabaseInUse."""
        from bot.database.postgres_copy import copy_to_postgres

        with _faults_of(self.config):
            return copy_to_postgres(file, self._server, self._verify, record, COPY_SECONDS, progress or CopyProgress())

    def read_into(self, file: Path, progress: CopyProgress | None = None) -> Copied:
        """Make a file with the rows of the database, which no service may use meanwhile. Raises DatabaseInUse."""
        from bot.database.postgres_copy import copy_to_sqlite

        with _faults_of(self.config):
            return copy_to_sqlite(self._server, file, self._verify, COPY_SECONDS, progress)

    @property
    def _server(self) -> Target:
        return _session_target(self.config) or _target(self.config)

    def _verify(self, execute: Execute) -> ChainReport:
        return verify_chain(execute, {}, pruning_rules(self.config.audit))


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
