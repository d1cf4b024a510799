"""Bring a database to this version's schema: after a backup, never backwards.

SQLAlchemy and Alembic (half a second) are imported only when an older database must be brought on: a current one costs
one SELECT, a new one is made from `schema.sql`, where a reader finds the tables.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

HEAD = "0003"
SCHEMA = Path(__file__).parent / "schema.sql"
VERSIONS = Path(__file__).parent / "migrations" / "versions"


class NewerSchema(Exception):
    """This database was written by a newer version of Fawn: install that version again, or restore a backup."""


def revision(path: Path) -> str:
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


def migrate(path: Path, versions: Path = VERSIONS, head: str = HEAD) -> Path | None:
    """Bring the database at `path` to `head` by what is in `versions`.

    Returns the backup made before, if there was anything to save.
    Raises NewerSchema, and whatever the database raises. Blocking: call it before the service starts, or in a thread.
    """
    current = revision(path)
    if current == head:
        return None
    if not current:
        _create(path)
        return None
    known = {file.stem.split("_")[0] for file in versions.glob("[0-9]*.py")}
    if current and current not in known:
        raise NewerSchema(f"{NewerSchema.__doc__} (revision {current}, this version knows {head})")
    backup = _backup(path, current)
    upgrade(path, versions)
    return backup


def _backup(path: Path, current: str) -> Path:
    folder = path.parent / "backups"
    folder.mkdir(exist_ok=True)
    target = folder / f"{path.stem}-{current}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.db"
    source, copy = sqlite3.connect(path), sqlite3.connect(target)
    try:
        source.backup(copy)
    finally:
        source.close()
        copy.close()
    return target


def _create(path: Path) -> None:
    connection = sqlite3.connect(path)
    try:
        connection.executescript(SCHEMA.read_text())
    finally:
        connection.close()


def upgrade(path: Path, versions: Path = VERSIONS) -> None:
    """Run the migrations that the database at `path` lacks (all of them on a new one)."""
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import create_engine

    config = Config()
    config.set_main_option("script_location", str(versions.parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    engine = create_engine(f"sqlite:///{path}")
    try:
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    finally:
        engine.dispose()
