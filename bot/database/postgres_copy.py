"""Copy all rows from an SQLite file into an empty PostgreSQL database, or from there into a new SQLite file.

Each is one transaction of its target, and reads one moment of its source, which it does not change. It compares the
numbers of rows and the audit before it commits: a copy is whole and equal, or there is none.
"""

from __future__ import annotations

import itertools
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from bot.database.audit_check import read_only
from bot.database.database import Execute, StatementError, StorageError
from bot.database.early_data import CHECKPOINTS_FILE, is_early
from bot.database.migrate import (
    SCHEMA_FILE,
    DatabaseFault,
    NewerSchema,
    create_schema,
    head_revision,
    revision_chain,
    sync_path,
)
from bot.database.postgres_schema import MEMORY_WORDS, NO_MEMORY_WORDS, check_server, read_revision, render_schema
from bot.database.postgres_session import COPY_LOCK, NamedRow, Target, check_direct, connect, execute_on, own_database
from bot.database.progress import CopyProgress, Part
from bot.database.row_copy import (
    FULL_TEXT_COLUMNS,
    FULL_TEXT_TABLE,
    VERSION_TABLE,
    Copied,
    CopyDiffers,
    Record,
    RowsRefused,
    Table,
    Verify,
    convert_rows,
    restore_rows,
)
from catalogue import N_

Connection = psycopg.Connection[NamedRow]

SETTLE_SECONDS = 60.0  # in which the server has to say what became of a commit whose answer was lost
RETRY_SECONDS = 0.5
INSERTED_ROWS = 500  # by one call
# What ends a session that works for long or waits, as servers are set up: pg_dump puts these aside, too.
PATIENT = "SET statement_timeout=0; SET idle_in_transaction_session_timeout=0"
SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
COLUMNS = (
    "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema=current_schema()"
    " ORDER BY table_name, ordinal_position"
)
# Tables, views, sequences and functions but those of extensions, which servers put into each database.
OBJECTS = (
    "SELECT c.relname AS name FROM pg_class c WHERE c.relnamespace=CAST(current_schema() AS regnamespace)"
    " AND c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f') AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid=c.oid"
    " AND d.classid=CAST('pg_class' AS regclass) AND d.deptype='e')"
    " UNION ALL SELECT p.proname FROM pg_proc p WHERE p.pronamespace=CAST(current_schema() AS regnamespace)"
    " AND p.proname LIKE 'fawn%' ORDER BY 1 LIMIT 4"
)
IDENTITIES = (
    "SELECT table_name, column_name FROM information_schema.columns WHERE is_identity='YES'"
    " AND table_schema=current_schema()"
)
ABOUT_ROWS = (  # as the server last estimated; 0 where it never has
    "SELECT coalesce(sum(greatest(reltuples, 0)), 0) FROM pg_class"
    " WHERE relnamespace=CAST(current_schema() AS regnamespace) AND relkind='r'"
)
TYPES = {"bigint": "int8", "double precision": "float8"}  # as COPY is told
TABLE = re.compile(r"^CREATE (?:VIRTUAL )?TABLE (\w+)", re.MULTILINE)


class TargetNotEmpty(DatabaseFault):
    """There is something in the database already."""

    def __init__(self, names: Sequence[str]) -> None:
        text = N_(
            "the PostgreSQL database is not empty: it contains {names}. Nothing was changed. Make a new one for Fawn"
            " (docs/postgresql.md), or drop that one and make it again"
        )
        super().__init__(text, names=", ".join(names))


class OlderSchema(DatabaseFault):
    """An earlier version wrote the database that is to be copied."""

    def __init__(self, where: str, version: str) -> None:
        text = N_(
            "an earlier version of Fawn wrote {where} (its tables are of {version}): start this version on it once,"
            " stop it, and copy then"
        )
        super().__init__(text, where=where, version=version)


class CommitUnsettled(DatabaseFault):
    """The connection was lost while the copy was committed, and the server did not say what became of it."""

    def __init__(self) -> None:
        super().__init__(
            N_(
                "the connection to the server was lost at the last moment. Once it can be reached, give the same"
                " command again: if it says that the database is not empty, the copy is complete"
            )
        )


def check_empty(target: Target) -> None:
    """Raises TargetNotEmpty, UnfitDatabase and StorageError."""
    with closing(connect(target)) as connection:
        _check_target(partial(execute_on, connection))


def copy_to_postgres(
    file: Path, target: Target, verify: Verify, record: Record | None, patience: float, progress: CopyProgress
) -> Copied:
    """Fill an empty database with the rows of a file, and own it meanwhile.

    Raises DatabaseInUse, DatabaseFault and StorageError; unless it is CommitUnsettled, nothing was kept.
    """
    check_file(file)
    with _talking(target) as connection:
        own_database(connection, patience)
        execute = partial(execute_on, connection)
        _check_target(execute)
        connection.execute("BEGIN")
        connection.execute(re.sub(r"^(BEGIN|COMMIT);$", "", render_schema(), flags=re.MULTILINE).encode())
        with _rows_of(file) as source:
            connection.execute(NO_MEMORY_WORDS)
            copied = _fill(connection, source, progress)
            connection.execute(MEMORY_WORDS)
            _set_identities(connection, source)
        with read_only(file, snapshot=True) as read:
            copied.audit = _compare_audit(verify, read, execute)
        if record:
            record(execute)
        _commit(connection, target)
    with suppress(psycopg.Error, StorageError), closing(connect(target)) as connection:  # else autovacuum does it
        connection.execute("ANALYZE")
    return copied


def copy_to_sqlite(
    target: Target,
    file: Path,
    verify: Verify | None = None,
    patience: float | None = None,
    progress: CopyProgress | None = None,
) -> Copied:
    """Make an SQLite file with the rows of a database at one moment. With `patience`, own the database meanwhile.

    Raises DatabaseInUse, DatabaseFault, StorageError, sqlite3.Error and OSError.
    """
    with _talking(target) as connection:
        if patience is not None:
            own_database(connection, patience)
        execute = partial(execute_on, connection)
        connection.execute(f"SELECT pg_advisory_lock_shared({COPY_LOCK})")
        connection.execute(SNAPSHOT)
        _check_revision(read_revision(execute), "PostgreSQL")
        create_schema(file)
        with closing(sqlite3.connect(file, isolation_level=None)) as copy:
            copy.execute("PRAGMA synchronous=OFF")  # what is not complete is not used
            copy.execute("PRAGMA secure_delete=ON").fetchall()
            copy.execute("BEGIN")
            copied = _fill_file(connection, copy, progress or CopyProgress())
            copy.execute("COMMIT")
        sync_path(file)
        if verify:
            with read_only(file, snapshot=True) as read:
                copied.audit = _compare_audit(verify, execute, read)
    return copied


def check_file(file: Path) -> None:
    """Raise DatabaseFault for a file that is not of this version."""
    try:
        with read_only(file, snapshot=False) as execute:
            found = execute("SELECT version_num FROM alembic_version", {})
    except sqlite3.Error as error:
        raise DatabaseFault.from_error(error) from error
    revision = str(found[0]["version_num"]) if found else ""
    if (file.parent / CHECKPOINTS_FILE).exists():
        raise OlderSchema(file.name, CHECKPOINTS_FILE)
    _check_revision(revision, file.name)


def _check_revision(revision: str, where: str) -> None:
    if is_early(revision) or revision in revision_chain()[:-1]:
        raise OlderSchema(where, revision)
    if revision != head_revision():
        raise NewerSchema(where, revision, head_revision())


def _check_target(execute: Execute) -> None:
    check_server(execute)
    if found := execute(OBJECTS, {}):
        names = [str(row["name"]) for row in found]
        raise TargetNotEmpty([*names[:3], *(["…"] if len(names) > 3 else [])])


@contextmanager
def _talking(target: Target) -> Iterator[Connection]:
    """Connect for a long transaction; what psycopg raises becomes StorageError."""
    with closing(connect(target)) as connection:
        try:
            check_direct(connection)
            connection.execute(PATIENT)
            yield connection
        except (psycopg.Error, StatementError) as error:
            raise StorageError(" ".join(str(error).split())) from error


@contextmanager
def _rows_of(file: Path) -> Iterator[sqlite3.Connection]:
    """Open a file to be read at one moment; its texts come as bytes, because they may be none."""
    address = f"{file.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as source:
        source.text_factory = bytes
        source.execute("BEGIN")
        yield source


def _tables(connection: Connection) -> list[Table]:
    """Return the tables of Fawn with their columns, without the version: others may be there, too."""
    columns: dict[str, dict[str, str]] = {name: {} for name in TABLE.findall(SCHEMA_FILE.read_text())}
    for table, column, kind in connection.execute(COLUMNS):
        if table in columns:
            columns[table][column] = kind
    del columns[VERSION_TABLE]
    columns[FULL_TEXT_TABLE] = FULL_TEXT_COLUMNS
    return [Table(name, found) for name, found in columns.items()]


def _fill(connection: Connection, source: sqlite3.Connection, progress: CopyProgress) -> Copied:
    copied = Copied()
    progress.begin(Part.ROWS, sum(_count(source, table.name) for table in _tables(connection)))
    for table in _tables(connection):
        rows = source.execute(f"SELECT _rowid_, {table.names} FROM {table.name}")
        count = 0
        with connection.cursor().copy(f"COPY {table.name} ({table.names}) FROM STDIN (FORMAT BINARY)".encode()) as copy:
            copy.set_types([TYPES.get(kind, kind) for kind in table.columns.values()])
            for row in convert_rows(table, rows, copied):
                copy.write_row(row)
                count += 1
                progress.add(1)
        copied.counts[table.name] = count
    if copied.faults:
        raise RowsRefused(copied.faults)
    for name, count in copied.counts.items():
        _compare(connection, name, (count, _count(source, name)))
    return copied


def _count(source: sqlite3.Connection, name: str) -> int:
    [[rows]] = source.execute(f"SELECT count(*) FROM {name}").fetchall()
    return int(rows)


def _compare(connection: Connection, table: str, counts: Sequence[int]) -> None:
    """Raise CopyDiffers where a table of PostgreSQL does not have this number of rows."""
    [[found]] = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchall()
    for count in counts:
        if count != found:
            raise CopyDiffers(table, count, found)


def _compare_audit(verify: Verify, source: Execute, copy: Execute) -> Any:
    """Return the report on the copied audit. Raises CopyDiffers where that of its source is another one."""
    expected, found = verify(source), verify(copy)
    if found != expected:
        raise CopyDiffers("audit", found, expected)
    return found


def _set_identities(connection: Connection, source: sqlite3.Connection) -> None:
    """Have numbers go on where SQLite was: a number names a row for good, also one that is gone."""
    used = {bytes(name).decode(): int(last) for name, last in source.execute("SELECT name, seq FROM sqlite_sequence")}
    for table, column in connection.execute(IDENTITIES).fetchall():
        [[highest]] = connection.execute(f'SELECT coalesce(max("{column}"), 0) FROM {table}'.encode()).fetchall()
        following = max(highest, used.get(table, 0), 0) + 1
        connection.execute(f'ALTER TABLE {table} ALTER COLUMN "{column}" RESTART WITH {following}'.encode())


def _fill_file(connection: Connection, copy: sqlite3.Connection, progress: CopyProgress) -> Copied:
    copied = Copied()
    [[about]] = connection.execute(ABOUT_ROWS).fetchall()
    progress.begin(Part.ROWS, int(about))
    for table in _tables(connection):
        places = ", ".join("?" * len(table.columns))
        insert = f"INSERT INTO {table.name}({table.names}) VALUES ({places})"
        query = f"COPY (SELECT {table.names} FROM {table.name}) TO STDOUT (FORMAT BINARY)"
        count = 0
        with connection.cursor().copy(query.encode()) as found:
            found.set_types([TYPES.get(kind, kind) for kind in table.columns.values()])
            rows = restore_rows(table, found.rows())
            while batch := [*itertools.islice(rows, INSERTED_ROWS)]:
                copy.executemany(insert, batch)
                count += len(batch)
                progress.add(len(batch))
        copied.counts[table.name] = count
        [[stored]] = copy.execute(f"SELECT count(*) FROM {table.name}").fetchall()
        _compare(connection, table.name, (count, stored))
    copy.execute("DELETE FROM sqlite_sequence")
    for name, last in _used_numbers(connection):
        copy.execute(
            "INSERT INTO sqlite_sequence(name, seq) SELECT name, :last FROM sqlite_schema"
            " WHERE type='table' AND name=:table AND sql LIKE '%AUTOINCREMENT%'",
            {"table": name, "last": last},
        )
    return copied


def _used_numbers(connection: Connection) -> Iterator[tuple[str, int]]:
    """Yield the last number that each table has given."""
    for table, column in connection.execute(IDENTITIES).fetchall():
        [[sequence]] = connection.execute("SELECT pg_get_serial_sequence(%s, %s)", (table, column)).fetchall()
        [[last]] = connection.execute(
            f"SELECT CASE WHEN is_called THEN last_value ELSE last_value-1 END FROM {sequence}".encode()
        ).fetchall()
        [[highest]] = connection.execute(f'SELECT coalesce(max("{column}"), 0) FROM {table}'.encode()).fetchall()
        yield table, max(last, highest)


def _commit(connection: Connection, target: Target) -> None:
    """Commit. Raises CommitUnsettled where nobody can say whether it did, and StorageError where it did not."""
    [[transaction]] = connection.execute("SELECT CAST(pg_current_xact_id() AS text)").fetchall()
    try:
        connection.execute("COMMIT")
    except psycopg.Error as error:
        if not connection.closed:
            raise
        if _status_of(target, transaction) != "committed":
            raise StorageError(" ".join(str(error).split())) from error


def _status_of(target: Target, transaction: str) -> str:
    until = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < until:
        try:
            with closing(connect(target)) as connection:
                sql = "SELECT pg_xact_status(CAST(%s AS xid8))"
                [[status]] = connection.execute(sql, (transaction,)).fetchall()
        except (psycopg.Error, StorageError):
            status = "in progress"
        if status in ("committed", "aborted"):
            return str(status)
        time.sleep(RETRY_SECONDS)
    raise CommitUnsettled
