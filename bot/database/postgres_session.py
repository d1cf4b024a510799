"""Connect to PostgreSQL and run statements there, with rows and values as SQLite has them.

Statements are spelled by `dialect.py`. What is run once has its values put into the statement here; the units of work
of a service go through `postgres_statements.py`.

Renew the lease of a process on a connection of its own: nothing that its other work waits for holds it up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from typing import Any

import psycopg
from psycopg.adapt import Loader
from psycopg.conninfo import make_conninfo
from psycopg.pq import PGconn, Ping

from bot.database.data_lock import DatabaseInUse
from bot.database.database import DatabaseAway, Execute, StatementError, StorageError
from bot.database.dialect import AdvisoryLock, spell_for_postgresql
from bot.database.migrate import DatabaseFault
from bot.database.replicas import RENEW, RENEW_SECONDS
from catalogue import N_

OWNER_LOCK, FENCE = int(AdvisoryLock.OWNER), int(AdvisoryLock.FENCE)
COPY_LOCK, SCHEMA_LOCK = int(AdvisoryLock.COPY), int(AdvisoryLock.SCHEMA)
PROCESS_LOCK = int(AdvisoryLock.PROCESS)
LOST_SECONDS = 15  # after which a connection counts as lost whose other end is silent
STATEMENT_ERRORS = (
    psycopg.IntegrityError,
    psycopg.InterfaceError,
    psycopg.DataError,
    psycopg.NotSupportedError,
)
NOTICE_LOSS = (  # by the server, which would keep the lock of a machine that lost its power for two hours
    f"SET tcp_keepalives_idle={LOST_SECONDS // 3}; SET tcp_keepalives_interval={LOST_SECONDS // 3};"
    f" SET tcp_keepalives_count=2; SET tcp_user_timeout={LOST_SECONDS * 1000}"
)
PARAMETER = re.compile(r"'(?:[^']|'')*'|(?<!:):([A-Za-z_]\w*)")


Target = str | Mapping[str, str]  # a URL, or the parameters of libpq with the URL as `conninfo`


class WholeNumber(Loader):
    """Load NUMERIC, as which PostgreSQL sums what is counted in BIGINT."""

    def load(self, data: Any) -> int | float:
        """Return a whole number where it is one."""
        text = bytes(data).decode()
        return int(text) if text.lstrip("-").isdigit() else float(text)


class NamedRow:
    """A row as `sqlite3.Row` is one: `row["name"]`, `row[0]`, `dict(row)`; it iterates over its values."""

    __slots__ = ("_names", "_values")

    def __init__(self, names: Mapping[str, int], values: Sequence[Any]) -> None:
        self._names, self._values = names, values

    def __getitem__(self, key: str | int) -> Any:
        return self._values[self._names[key] if isinstance(key, str) else key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def keys(self) -> list[str]:
        """Return the names of the columns."""
        return [*self._names]


def _make_rows(cursor: psycopg.Cursor[Any]) -> Callable[[Sequence[Any]], NamedRow]:
    names = {column.name: number for number, column in enumerate(cursor.description or ())}
    return lambda values: NamedRow(names, values)


@lru_cache(maxsize=2048)
def translate(sql: str) -> str:
    """Return a statement as psycopg reads it: spelled for PostgreSQL, `:name` as `%(name)s`."""
    spelled = spell_for_postgresql(sql).replace("%", "%%")
    return PARAMETER.sub(lambda found: f"%({found[1]})s" if found[1] else found[0], spelled)


def without_nul(value: Any) -> Any:
    """Return a value as PostgreSQL takes it: its texts have no NUL."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) and "\0" in value else value


def _parameters(target: Target) -> dict[str, Any]:
    return {"conninfo": target} if isinstance(target, str) else dict(target)


def connection_options(target: Target) -> dict[str, Any]:
    """Return the parameters of a connection that notices when its other end is silent."""
    bounds: dict[str, Any] = {
        "client_encoding": "UTF8",
        "connect_timeout": LOST_SECONDS,
        "keepalives_idle": LOST_SECONDS // 3,
        "keepalives_interval": LOST_SECONDS // 3,
        "keepalives_count": 2,
        "tcp_user_timeout": LOST_SECONDS * 1000,
        "application_name": "fawn",
    }
    return bounds | _parameters(target)


def connect(target: Target) -> psycopg.Connection[NamedRow]:
    """Connect; each statement is a transaction until one begins. Raises DatabaseAway, and StorageError if refused."""
    try:
        connection = _try_to_connect(target)
    except psycopg.Error as error:
        if _is_away(_parameters(target)):
            raise DatabaseAway(str(error).strip()) from error
        try:  # it may have come up between both
            connection = _try_to_connect(target)
        except psycopg.Error as refused:
            raise StorageError(str(refused).strip()) from refused
    connection.adapters.register_loader("numeric", WholeNumber)
    return connection


def _try_to_connect(target: Target) -> psycopg.Connection[NamedRow]:
    return psycopg.connect(
        **connection_options(target), autocommit=True, row_factory=_make_rows, cursor_factory=psycopg.ClientCursor
    )


def connect_plainly(target: Target) -> psycopg.Connection[Any]:
    """Connect as programs expect it that know nothing of Fawn. Raises psycopg.Error."""
    return psycopg.connect(**_parameters(target))


def _is_away(parameters: Mapping[str, Any]) -> bool:
    """Return whether no server answers, or one that starts or stops. Asked without TLS: a certificate is no reason.

    `ping` holds Python's lock, so the whole process waits for a silent server: for the shortest time that libpq knows.
    """
    try:
        address = make_conninfo(**(dict(parameters) | {"sslmode": "disable", "sslrootcert": "", "connect_timeout": 2}))
    except psycopg.Error:
        return False
    return PGconn.ping(address.encode()) in (Ping.REJECT, Ping.NO_RESPONSE)


@contextmanager
def reading(target: Target, *, snapshot: bool) -> Iterator[Execute]:
    """Yield what reads the database beside a service, and cannot write. A `snapshot` shows one state all the time."""
    with closing(connect(target)) as connection:
        beginning = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        if snapshot:
            connection.execute(beginning)

        def execute(sql: str, values: Mapping[str, Any] = {}) -> Sequence[Any]:
            if snapshot:
                return execute_on(connection, sql, values)
            execute_on(connection, beginning, {})
            try:
                return execute_on(connection, sql, values)
            finally:
                _end_reading(connection)

        yield execute


def _end_reading(connection: psycopg.Connection[NamedRow]) -> None:
    """End what was begun to read. Raises StorageError where the server has ended meanwhile."""
    try:
        if not connection.closed:
            connection.rollback()
    except psycopg.Error as error:
        raise own_error(error) from error


def execute_on(connection: psycopg.Connection[NamedRow], sql: str, values: Mapping[str, Any]) -> Sequence[Any]:
    """Run a statement as `Execute` promises. Raises StatementError, and StorageError for what ends the transaction."""
    try:
        cursor = connection.execute(translate(sql), {name: without_nul(value) for name, value in values.items()})
        return cursor.fetchall() if cursor.description else ()
    except psycopg.Error as error:
        raise own_error(error) from error


def own_error(error: psycopg.Error) -> StatementError | StorageError:
    """Return an error of a statement as `Execute` promises it."""
    if isinstance(error, psycopg.ProgrammingError) and not error.sqlstate:  # psycopg's own: a value is missing
        return StatementError(str(error))
    if isinstance(error, STATEMENT_ERRORS):
        return StatementError(str(error))
    return StorageError(str(error))  # also a table that is not there, as on SQLite


class PoolerFound(DatabaseFault):
    """Between this process and the server is a pooler, and nothing says where the server itself is."""

    def __init__(self) -> None:
        super().__init__(
            N_(
                "`database.url` names a pooler such as PgBouncer. Add `session_url` with the server itself: one session"
                " holds the lock that keeps a second process away"
            )
        )


def check_direct(connection: psycopg.Connection[NamedRow]) -> None:
    """Raise PoolerFound where each transaction can have another session."""
    [[process]] = connection.execute("SELECT pg_backend_pid()").fetchall()
    if process != connection.info.backend_pid:
        raise PoolerFound


def own_database(connection: psycopg.Connection[NamedRow], patience: float, *, shared: bool = False) -> None:
    """Have this session own the database until its end, once the last transaction of the owner before it has ended.

    `shared`: with others that share it, but with none that wants it alone. Raises DatabaseInUse, after some seconds of
    waiting.
    """
    connection.execute(f"SET lock_timeout={max(patience, 0.001) * 1000:.0f}; {NOTICE_LOSS}")
    try:
        if shared:
            connection.execute(f"SELECT pg_advisory_lock_shared({OWNER_LOCK})")
            return
        connection.execute(f"SELECT pg_advisory_lock({OWNER_LOCK})")
        connection.execute(f"SELECT pg_advisory_lock({FENCE}); SELECT pg_advisory_unlock({FENCE})")
    except psycopg.errors.LockNotAvailable:
        raise DatabaseInUse from None


def owner_address(execute: Execute) -> str:
    """Return where the process is that owns the database; "" if none does."""
    rows = execute(
        "SELECT coalesce(host(client_addr), 'its own machine') AS address FROM pg_locks"
        " LEFT JOIN pg_stat_activity USING (pid) WHERE locktype='advisory' AND granted AND objid=:lock"
        " AND pg_locks.database=(SELECT oid FROM pg_database WHERE datname=current_database())",
        {"lock": OWNER_LOCK},
    )
    return str(rows[0]["address"]) if rows else ""


def may_create(execute: Execute) -> bool:
    """Return whether the user may make tables."""
    return bool(execute("SELECT has_schema_privilege('public', 'CREATE') AS may", {})[0]["may"])


CONNECT_SECONDS = int(RENEW_SECONDS)


class PostgresLease:
    """The connection that renews the lease of the process `me`. It is opened when it is needed, and again when lost."""

    def __init__(self, target: Target, me: str) -> None:
        self._target, self._me = target, me
        self._connection: psycopg.AsyncConnection | None = None

    async def renew(self) -> int:
        """Return how many processes have a lease; 0: this one has none any more. Raises StorageError."""
        try:
            connection = self._connection or await self._connect()
            found = await connection.execute(translate(RENEW), {"id": self._me, "begin": 0})
            row = await found.fetchone()
        except (psycopg.Error, OSError) as error:
            await self.close()
            raise StorageError(" ".join(str(error).split())) from error
        return int(row[0]) if row else 0

    async def _connect(self) -> psycopg.AsyncConnection:
        options = connection_options(self._target) | {"connect_timeout": CONNECT_SECONDS}
        self._connection = connection = await psycopg.AsyncConnection.connect(
            **options, autocommit=True, cursor_factory=psycopg.AsyncClientCursor
        )  # from here on, `close` ends it, also after a cancellation below
        await connection.execute("SET synchronous_commit=off")  # a server that lost its power lets all leases end
        return connection

    async def close(self) -> None:
        """End the connection."""
        connection, self._connection = self._connection, None
        if connection:
            await connection.close()
