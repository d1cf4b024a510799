"""Bring the databases of a data_dir to this version's schema: after a backup, never backwards, whole or not at all.

SQLite's changes of a schema are not one transaction under Alembic, so a migration works on a copy, which takes the
database's place when it is done: a process that is killed on the way leaves the old one, and the next start begins
again. SQLAlchemy and Alembic (half a second) are imported only when an older database must be brought on: a current one
costs one SELECT, a new one is made from `schema.sql`, where a reader finds the tables.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from pathlib import Path

from sandbox.disk.removal import remove_tree

HEAD_REVISION = "0004"
CHECKPOINTS = 1  # of the tables in agent/checkpointer.py, and of what is serialized into them
SCHEMA_FILE = Path(__file__).parent / "schema.sql"
VERSIONS_DIR = Path(__file__).parent / "migrations" / "versions"


class DatabaseFault(Exception):
    """A database cannot be used; the text says which one and why."""

    @classmethod
    def of(cls, error: Exception) -> DatabaseFault:
        """The sentence for what the system or SQLite said."""
        return cls(
            f"the databases in data_dir cannot be used: {error}. Nothing was deleted. Look at the disk's room and at"
            " who owns the files; if a file is damaged, restore a backup"
        )


class NewerSchema(DatabaseFault):
    """This database was written by a newer version of Fawn: install that version again, or restore a backup."""


def prepare(data_dir: Path) -> Path | None:
    """Bring both databases of a data_dir on, and give the backup if one was made before. Raises DatabaseFault."""
    try:
        backup = migrate_database(data_dir / "fawn.db")
        _stamp(data_dir / "checkpoints.db")
    except (sqlite3.Error, OSError) as error:
        raise DatabaseFault.of(error) from error
    return backup


def _stamp(path: Path) -> None:
    """Write the version of its tables into a database of checkpoints, or compare it. Raises NewerSchema."""
    connection = sqlite3.connect(path)
    try:
        [(version,)] = connection.execute("PRAGMA user_version")
        if version > CHECKPOINTS:
            raise NewerSchema(f"{NewerSchema.__doc__} ({path.name} {version}, this version knows {CHECKPOINTS})")
        if version < CHECKPOINTS:
            connection.execute(f"PRAGMA user_version={CHECKPOINTS}")
    finally:
        connection.close()


def schema_revision(path: Path) -> str:
    """The schema revision of the database at `path`, "" when it is new or empty."""
    if not path.exists():
        return ""
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return ""
        raise
    finally:
        connection.close()
    return str(rows[0][0]) if rows else ""


def migrate_database(path: Path, versions: Path = VERSIONS_DIR, head: str = HEAD_REVISION) -> Path | None:
    """Bring the database at `path` to `head` by what is in `versions`.

    Returns the backup made before, if there was anything to save.
    Raises NewerSchema, and whatever the database raises. Blocking: call it before the service starts, or in a thread.
    """
    current = schema_revision(path)
    if current == head:
        return None
    if not current:
        _create_schema(path)
        return None
    known = {file.stem.split("_")[0] for file in versions.glob("[0-9]*.py")}
    if current and current not in known:
        raise NewerSchema(f"{NewerSchema.__doc__} (revision {current}, this version knows {head})")
    draft = path.with_name("migrating")  # a folder, with what SQLite leaves beside a database
    remove_tree(draft)
    draft.mkdir()
    copy = draft / path.name
    _copy(path, copy)
    backup = _make_backup(copy, current)
    upgrade_schema(copy, versions)
    for each in (copy, path):  # a log that the old one left would be applied to the new one
        _settle(each)
    os.replace(copy, path)
    _sync(path.parent)
    draft.rmdir()
    return backup


def _copy(path: Path, target: Path) -> None:
    source, copy = sqlite3.connect(path), sqlite3.connect(target)
    try:
        source.backup(copy)
    finally:
        source.close()
        copy.close()
    _settle(target)


def _make_backup(copy: Path, current: str) -> Path:
    """Keep a copy of this copy for the operator."""
    folder = copy.parent.parent / "backups"
    folder.mkdir(exist_ok=True)
    target = folder / f"{copy.stem}-{current}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.db"
    draft = copy.with_suffix(".backup")
    shutil.copyfile(copy, draft)
    _sync(draft)
    os.replace(draft, target)
    _sync(folder)
    return target


def _settle(path: Path) -> None:
    """Write what is in the database's log into its file, which then is all of it."""
    connection = sqlite3.connect(path)
    try:
        [(mode,)] = connection.execute("PRAGMA journal_mode=DELETE")
        if mode != "delete":
            raise sqlite3.OperationalError(f"{path.name} is used by another process")
    finally:
        connection.close()
    _sync(path)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _create_schema(path: Path) -> None:
    connection = sqlite3.connect(path)
    try:
        connection.executescript(SCHEMA_FILE.read_text())
    finally:
        connection.close()


def upgrade_schema(path: Path, versions: Path = VERSIONS_DIR, revision: str = "head") -> None:
    """Run the migrations that the database at `path` lacks (all of them on a new one), up to `revision`."""
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import create_engine
    from sqlalchemy.exc import DBAPIError

    config = Config()
    config.set_main_option("script_location", str(versions.parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    engine = create_engine(f"sqlite:///{path}")
    try:
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, revision)
    except DBAPIError as error:
        raise error.orig or error from error
    finally:
        engine.dispose()
