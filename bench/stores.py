"""Make empty databases to measure: a file of SQLite, or databases of their own on a server of PostgreSQL."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from bot.database.database import Database
from bot.database.migrate import migrate_database


@asynccontextmanager
async def empty_store(server: str = "") -> AsyncIterator[Database]:
    """Yield a database with the present tables, which is deleted afterwards.

    `server` is the URL of any database on a server of PostgreSQL, whose user may create others; SQLite without it.
    """
    if not server:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "fawn.db")
            migrate_database(path)
            async with Database(path) as store:
                yield store
        return
    import psycopg

    from bot.database.postgres import DatabaseServer, PostgresDatabase

    name = f"fawn_bench_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING 'UTF8' TEMPLATE template0".encode())
        try:
            async with PostgresDatabase(DatabaseServer(urlsplit(server)._replace(path=f"/{name}").geturl())) as store:
                yield store
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
