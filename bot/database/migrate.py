"""Upgrade the database of a data_dir to this version's schema: after a backup, never backwards, whole or not at all.

Alembic's changes of an SQLite schema are not one transaction. So a migration changes a copy, which replaces the
database when it is done: a process that is killed meanwhile leaves the old one, and the next start begins again.

New databases get `schema.sql`, which has what the migrations from 0128 on have made of them (`make schema`). Data of
earlier checkouts is copied into it. SQLAlchemy and Alembic (half a second) are imported only to run a migration.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from bot.database import upkeep
from bot.database.early_data import (
    CHECKPOINTS_FILE,
    CHECKPOINTS_REVISION,
    CHECKPOINTS_VERSION,
    EARLIEST,
    copy_checkpoints,
    copy_rows,
    is_early,
)
from catalogue import N_, LocalizedError
from sandbox.disk.folders import remove_tree

if TYPE_CHECKING:
    from sqlalchemy import Engine

log = logging.getLogger(__name__)

RESTORING = "restoring"  # the folder of a restore that has not ended
COPYING = "copying"  # that of a copy of PostgreSQL into a file
SCHEMA_FILE = Path(__file__).parent / "schema.sql"
VERSIONS_DIR = Path(__file__).parent / "migrations" / "versions"
BACKUP_TIME = "%Y%m%d-%H%M%S"
_UPGRADE_BACKUP = re.compile(r"\w+-\d{4}-\d{8}-\d{6}\.db")
_ADDITIVE = re.compile(r"^ADDITIVE = True$", re.MULTILINE)  # in a migration that the version before can work with
_FOLLOWS = re.compile(r"""^down_revision = ["']([0-9]{4})["']""", re.MULTILINE)


class DatabaseFault(LocalizedError):
    """A database cannot be used; the text says which one and why."""

    @classmethod
    def from_error(cls, error: Exception) -> DatabaseFault:
        """Return the fault for an error of the system or of SQLite."""
        text = N_(
            "the databases in data_dir cannot be used: {error}. Nothing was deleted. Check the free disk space and the"
            " owner of the files; if a file is damaged, restore a backup"
        )
        return cls(text, error=str(error))


class NewerSchema(DatabaseFault):
    """A newer version of Fawn wrote this database."""

    def __init__(self, file: str, version: object, known: object) -> None:
        text = N_(
            "A newer version of Fawn wrote this database: install that version again, or restore a backup"
            " ({file} has version {version}, this Fawn knows {known})"
        )
        super().__init__(text, file=file, version=version, known=known)


class InterruptedRestore(DatabaseFault):
    """A restore has not ended."""

    def __init__(self, data_dir: Path) -> None:
        text = N_("a restore into {data_dir} was interrupted: run `fawn restore` with the same file again")
        super().__init__(text, data_dir=data_dir)


def prepare_databases(data_dir: Path) -> Path | None:
    """Upgrade the database of a data_dir. Returns the backup, if it made one. Raises DatabaseFault."""
    if (data_dir / RESTORING).exists() and not (data_dir / "fawn.db").exists():
        raise InterruptedRestore(data_dir)
    if (data_dir / COPYING).exists() and not (data_dir / "fawn.db").exists():
        text = N_(
            "a copy of PostgreSQL into {data_dir} was interrupted: run `fawn migrate --to sqlite` again, or delete the"
            " folder {name} there to begin with nothing"
        )
        raise DatabaseFault(text, data_dir=data_dir, name=COPYING)
    try:
        _check_checkpoints(data_dir / CHECKPOINTS_FILE)
        backup = migrate_database(data_dir / "fawn.db")
        adopt_checkpoints(data_dir)
    except (sqlite3.Error, OSError) as error:
        raise DatabaseFault.from_error(error) from error
    return backup


def adopt_checkpoints(data_dir: Path) -> None:
    """Take over the states of conversations from the file that early versions kept them in, which becomes a backup.

    A process that is killed before the file has another name leaves it to the next start, which copies what is missing:
    no turn has run in between.
    """
    old = data_dir / CHECKPOINTS_FILE
    if not old.exists():
        return
    _merge_log(old)
    copy_checkpoints(old, data_dir / "fawn.db")
    folder = data_dir / "backups"
    folder.mkdir(exist_ok=True)
    os.replace(old, folder / f"{old.stem}-{CHECKPOINTS_REVISION}-{time.strftime(BACKUP_TIME, time.gmtime())}.db")
    for each in (folder, data_dir):  # before a turn runs: old states must not come back beside newer ones
        sync_path(each)


def check_revisions(data_dir: Path) -> None:
    """Check, without a change, that this version can use the database of a data_dir. Raises DatabaseFault."""
    try:
        path = data_dir / "fawn.db"
        current = schema_revision(path)
        _check_revision(current, VERSIONS_DIR)
        _check_checkpoints(data_dir / CHECKPOINTS_FILE)
    except (sqlite3.Error, OSError) as error:
        raise DatabaseFault.from_error(error) from error


def _check_checkpoints(path: Path) -> None:
    """Check that this version can read the file of checkpoints, if there is one. Raises NewerSchema."""
    if path.exists():
        with closing(sqlite3.connect(path)) as connection:
            [(version,)] = connection.execute("PRAGMA user_version")
        if version > CHECKPOINTS_VERSION:
            raise NewerSchema(path.name, version, CHECKPOINTS_VERSION)


def schema_revision(path: Path) -> str:
    """Return the schema revision of the database at `path`, "" when it is new or empty."""
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


def head_revision(versions: Path = VERSIONS_DIR) -> str:
    """Return the revision of this version's schema."""
    return revision_chain(versions)[-1]


def revision_chain(versions: Path = VERSIONS_DIR) -> list[str]:
    """Return all revisions in the order in which they are applied, whatever their numbers."""
    texts = {file.name[:4]: file.read_text("utf-8") for file in versions.glob("[0-9]*.py")}
    next_of = {found[1]: name for name, text in texts.items() if (found := _FOLLOWS.search(text))}
    [first] = texts.keys() - next_of.values()
    chain = [first]
    while following := next_of.get(chain[-1]):
        chain.append(following)
    return chain


def usable_by(versions: Path = VERSIONS_DIR) -> list[str]:
    """Return the revisions whose versions can work with the tables of the last one: what follows only adds to them."""
    usable = []
    for revision in reversed(revision_chain(versions)):
        usable.append(revision)
        if not is_additive(revision, versions):
            break
    return usable


def is_additive(revision: str, versions: Path = VERSIONS_DIR) -> bool:
    """Return whether processes of the version before a migration may go on while it runs, and afterwards."""
    [file] = versions.glob(f"{revision}_*.py")
    return bool(_ADDITIVE.search(file.read_text("utf-8")))


def _revisions(versions: Path) -> set[str]:
    return {file.name[:4] for file in versions.glob("[0-9]*.py")}


def _check_revision(current: str, versions: Path) -> None:
    known = _revisions(versions)
    if current and current < EARLIEST:
        text = N_(
            "The database in data_dir is from an early version, which this Fawn can no longer upgrade ({version}, the"
            " earliest it knows is {known}). Nothing was changed: point data_dir at an empty folder"
        )
        raise DatabaseFault(text, version=current, known=EARLIEST)
    if current and current not in known and not is_early(current):
        raise NewerSchema("fawn.db", current, head_revision(versions))


def migrate_database(path: Path, versions: Path = VERSIONS_DIR) -> Path | None:
    """Upgrade the database at `path` to the last revision in `versions`.

    Returns the backup of an older database. Raises NewerSchema and the errors of SQLite and the system. It blocks: call
    it before the service starts, or in a thread.
    """
    current, head = schema_revision(path), head_revision(versions)
    if current == head:
        return None
    if not current:
        create_schema(path)
        return None
    _check_revision(current, versions)
    draft = path.with_name("migrating")  # a folder: SQLite leaves files beside a database
    remove_tree(draft)
    draft.mkdir()
    copy = draft / path.name
    _copy_database(path, copy)
    backup = _make_backup(copy, current)
    if is_early(current):
        early, copy = copy, draft / "new.db"
        create_schema(copy)
        copy_rows(early, copy)
        early.unlink()
    else:
        upgrade_schema(copy, versions)
    for each in (copy, path):  # SQLite would apply a log of the old one to the new one
        _merge_log(each)
    os.replace(copy, path)
    sync_path(path.parent)
    draft.rmdir()
    return backup


def _copy_database(path: Path, target: Path) -> None:
    source, copy = sqlite3.connect(path), sqlite3.connect(target)
    try:
        source.backup(copy)
    finally:
        source.close()
        copy.close()
    _merge_log(target)


def _make_backup(copy: Path, current: str) -> Path:
    """Keep a copy of `copy` for the operator."""
    folder = copy.parent.parent / "backups"
    folder.mkdir(exist_ok=True)
    target = folder / f"{copy.stem}-{current}-{time.strftime(BACKUP_TIME, time.gmtime())}.db"
    draft = copy.with_suffix(".backup")
    shutil.copyfile(copy, draft)
    sync_path(draft)
    os.replace(draft, target)
    sync_path(folder)
    return target


def remove_upgrade_backups(data_dir: Path, before: float) -> None:
    """Remove the copies that upgrades kept and that are older than this unix time: they hold what people wrote."""
    for copy in (data_dir / "backups").glob("*.db"):
        if _UPGRADE_BACKUP.fullmatch(copy.name) and copy.lstat().st_mtime < before:
            copy.unlink()
            log.info("backup.removed file=%s", copy.name)


def _merge_log(path: Path) -> None:
    """Merge the write-ahead log into the database file and delete it."""
    connection = sqlite3.connect(path)
    try:
        [(mode,)] = connection.execute("PRAGMA journal_mode=DELETE")
        if mode != "delete":
            raise sqlite3.OperationalError(f"{path.name} is used by another process")
    finally:
        connection.close()
    sync_path(path)


def sync_path(path: Path) -> None:
    """Have a file, or the entries of a folder, survive a power failure. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def create_schema(path: Path) -> None:
    """Make a new database with the tables of this version."""
    connection = sqlite3.connect(path)
    try:
        connection.execute(f"PRAGMA auto_vacuum={upkeep.INCREMENTAL}")
        connection.executescript(SCHEMA_FILE.read_text())
    finally:
        connection.close()


def upgrade_schema(path: Path, versions: Path = VERSIONS_DIR, revision: str = "head") -> None:
    """Run the migrations that the database at `path` lacks (all of them if it is new), up to `revision`."""
    from sqlalchemy import create_engine

    run_migrations(create_engine(f"sqlite:///{path}"), versions, revision)


def run_migrations(engine: Engine, versions: Path, revision: str = "head") -> None:
    """Run the migrations that a database lacks, up to `revision`, in one transaction where the engine has that."""
    from alembic import command
    from alembic.config import Config
    from sqlalchemy.exc import DBAPIError

    config = Config()
    config.set_main_option("script_location", str(versions.parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    try:
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, revision)
    except DBAPIError as error:
        raise error.orig or error from error
    finally:
        engine.dispose()
