"""Upgrade the data of checkouts from before 0.1: copy their rows into the tables of this version. It goes after 0.2.

Up to revision 0128 the schema only grew, so each old column is either here or nothing needs it any more. A new column
has its default, except for those that `_FILLED` works out from the old rows. The earliest checkouts kept the states of
conversations in a file of their own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

EARLIEST, BASE = "0025", "0128"  # revisions: the first that is read here, and that of the first migration
CHECKPOINTS_FILE = "checkpoints.db"
CHECKPOINTS_VERSION, CHECKPOINTS_REVISION = 1, "0036"  # the last version of that file, and the schema at its time
_CHECKPOINT_TABLES = ("checkpoints", "checkpoint_writes")
_TABLES = """SELECT name FROM {schema}.sqlite_schema WHERE type='table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'
    AND name NOT IN (SELECT name FROM pragma_table_list WHERE type='shadow') AND name<>'alembic_version'"""
_FILLED = (  # a table or a column, and what fills it where the old database does not have it
    (  # what they have met is not known
        "exposures",
        "INSERT INTO exposures(conversation, private, untrusted, files) SELECT key, 1, 1, 1 FROM conversations",
    ),
    (  # subjects had no kind; the ids of DingTalk's chats may have a slash, otherwise only those of people do
        "calls",
        """UPDATE person_roles SET subject=CASE WHEN subject LIKE '%/%' AND NOT (channel='dingtalk' AND subject LIKE
        'cid%') THEN 'person:' || subject ELSE 'chat:' || subject END
        WHERE subject NOT LIKE 'person:%' AND subject NOT LIKE 'chat:%'""",
    ),
    (  # the title of a skill's program is the name of the skill; that of another command begins like the command
        "tasks.tool",
        """UPDATE tasks SET tool=CASE WHEN title NOT GLOB '*[^a-z0-9-]*' AND substr(what, 1, length(title))<>title
        THEN 'run_skill' ELSE 'bash' END WHERE kind='command'""",
    ),
    ("usage.began", "UPDATE usage SET began=at-seconds"),
    (
        "account_links",
        """INSERT INTO jobs("key", kind, due, payload, created)
        SELECT 'hand over:' || id, 'hand over', until, CAST('{"id":' || id || '}' AS BLOB), since
        FROM hand_overs WHERE ended IS NULL""",
    ),
)


def is_early(revision: str) -> bool:
    """Return whether `copy_rows` reads a database of this revision."""
    return EARLIEST <= revision < BASE


def copy_rows(old: Path, new: Path) -> None:
    """Copy the rows of an early database into a new one of this version, which is empty."""
    with _beside(old, new) as connection:
        known = {*_tables(connection, "old")}
        known |= {f"{table}.{column}" for table in known for column in _columns(connection, "old", table)}
        for table in _tables(connection, "main"):
            if table in known:
                both = _names(name for name in _columns(connection, "main", table) if f"{table}.{name}" in known)
                connection.execute(f"INSERT INTO main.{table}({both}) SELECT {both} FROM old.{table}")
        connection.execute("DELETE FROM main.sqlite_sequence")
        connection.execute(
            "INSERT INTO main.sqlite_sequence(name, seq) SELECT name, seq FROM old.sqlite_sequence"
            " WHERE name IN (SELECT name FROM main.sqlite_schema)"
        )
        for added, statement in _FILLED:
            if added not in known:
                connection.execute(statement)


def copy_checkpoints(old: Path, database: Path) -> None:
    """Copy the states of conversations that `database` lacks from their own file, in one transaction."""
    with _beside(old, database) as connection:
        for table in {*_CHECKPOINT_TABLES} & {*_tables(connection, "old")}:
            names = _names(_columns(connection, "main", table))
            rows = f"SELECT {names} FROM old.{table} WHERE true"
            connection.execute(f"INSERT INTO main.{table}({names}) {rows} ON CONFLICT DO NOTHING")


@contextmanager
def _beside(old: Path, database: Path) -> Iterator[sqlite3.Connection]:
    """Yield a transaction on a database that also reads `old`, and commit it."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("ATTACH :file AS old", {"file": str(old)})
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")


def _tables(connection: sqlite3.Connection, schema: str) -> list[str]:
    return [str(name) for (name,) in connection.execute(_TABLES.format(schema=schema)).fetchall()]


def _columns(connection: sqlite3.Connection, schema: str, table: str) -> list[str]:
    """Return the columns; a full-text index is known by its row numbers, too."""
    found = connection.execute("SELECT name FROM pragma_table_info(?, ?)", (table, schema)).fetchall()
    return [*(["rowid"] if table == "memory_index" else []), *(str(name) for (name,) in found)]


def _names(columns: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)
