"""Renew the lease of a process on a connection of its own: nothing that its other work waits for holds it up."""

from __future__ import annotations

import psycopg

from bot.database.database import StorageError
from bot.database.postgres_session import Target, connection_options, translate
from bot.database.replicas import RENEW, RENEW_SECONDS

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
