"""Run a PostgreSQL server for a process of tests: Debian's, as an unprivileged user, on a socket only."""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.engines import need
from tests.support.run_folder import run_folder, shared

ENGINE = os.environ.get("FAWN_TEST_DATABASE", "sqlite")  # of `rehearsed_database`: "postgresql" is the other one
PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
LETTERS = "--encoding=UTF8 --locale=C.UTF-8"
_databases: dict[Path, str] = {}  # their names, by the file that they stand for
SETTINGS = "listen_addresses= fsync=off full_page_writes=off shared_buffers=32MB max_connections=40 jit=off"


def need_postgres() -> None:
    """For tests on PostgreSQL."""
    need("" if PROGRAMS else "PostgreSQL is not there (on Debian: apt install postgresql)")


def unprivileged() -> list[str]:
    """Return how `setpriv` starts it, which refuses to run as root."""
    return ["--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.geteuid() == 0 else []


def _call(program: str, *arguments: str) -> None:
    done = subprocess.run(
        ["setpriv", *unprivileged(), str(PROGRAMS[-1] / program), *arguments],
        capture_output=True,
        text=True,
        cwd="/",
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _cluster(made_with: str) -> str:
    """Return the data of a server that was never started. A run makes it once: `initdb` takes far more than a copy."""
    name = f"cluster-{hashlib.sha256(made_with.encode()).hexdigest()[:8]}"
    return shared(name, functools.partial(_make_cluster, name, made_with))


def _make_cluster(name: str, made_with: str) -> str:
    with tempfile.TemporaryDirectory(prefix="fawn-cluster-") as folder:
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody", "nogroup")
        data = f"{folder}/data"
        _call("initdb", "-D", data, "-U", "fawn", "--auth=trust", "--no-sync", *made_with.split())
        return str(Path(data).rename(run_folder() / name))


class PostgresServer:
    """A server of its own, on a socket: `url` has a place for the name of a database."""

    def __init__(self, settings: str = SETTINGS, made_with: str = LETTERS) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fawn-postgres-", dir="/tmp"))  # a short path: a socket's is bounded
        self.url = f"postgresql://fawn@/{{}}?host={self.folder}"
        self._settings = [f"unix_socket_directories={self.folder}", *settings.split()]
        self._process: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            shutil.chown(self.folder, "nobody", "nogroup")
        copied = ["cp", "--archive", _cluster(made_with), str(self.folder / "data")]  # with its owner
        subprocess.run(copied, check=True)

    def set(self, **settings: str) -> None:
        """Change settings for the next start."""
        self._settings += [f"{name}={value}" for name, value in settings.items()]

    @property
    def _port(self) -> str:
        return next((each[5:] for each in reversed(self._settings) if each.startswith("port=")), "5432")

    def start(self) -> None:
        """Start it; the kernel stops it where this process ends without doing so."""
        options = [word for each in self._settings for word in ("-c", each)]
        program = [str(PROGRAMS[-1] / "postgres"), "-D", str(self.folder / "data"), *options]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "INT", *unprivileged(), *program], cwd="/", stdout=log, stderr=log
            )
        while subprocess.run(
            [str(PROGRAMS[-1] / "pg_isready"), "-q", "-h", str(self.folder), "-p", self._port], check=False
        ).returncode:
            assert self._process.poll() is None, (self.folder / "log").read_text("utf-8", "replace")
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT cuts all connections, SIGQUIT does not even write what is in memory, SIGTERM waits."""
        assert self._process
        self._process.send_signal(how)
        self._process.wait(60)
        self._process = None

    def remove(self) -> None:
        """Stop it and delete everything."""
        if self._process:
            self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder)


@contextmanager
def postgres_server(settings: str = SETTINGS) -> Iterator[PostgresServer]:
    """Run a server."""
    need_postgres()
    server = PostgresServer(settings)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@functools.cache
def _server() -> PostgresServer:
    """Return the server that the tests of this process share, which ends with it. It has a template."""
    import psycopg

    from bot.database.postgres_schema import render_schema

    server = PostgresServer()
    atexit.register(server.remove)
    server.start()
    with psycopg.connect(server.url.format("template1"), autocommit=True) as connection:
        connection.execute(render_schema())
    return server


def shared_server() -> PostgresServer:
    """Return that server, to be restarted."""
    return _server()


def server_folder() -> Path:
    """Return where the socket of that server is."""
    return _server().folder


def sql_on_server(where: PostgresServer | str, statement: str) -> None:
    """Run a statement as the administrator of a server, or of that which this URL names."""
    import psycopg

    url = where.url.format("postgres") if isinstance(where, PostgresServer) else where
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def new_database(name: str) -> str:
    """Make a database with the present tables; return its URL."""
    server = _server()
    sql_on_server(server, f'CREATE DATABASE "{name}" TEMPLATE template1')
    return server.url.format(name)


def files_of(url: str) -> list[Path]:
    """Return the files of a database's tables, with what was committed so far."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        found = connection.execute("SELECT oid FROM pg_database WHERE datname=current_database()").fetchone()
    assert found
    return [*(server_folder() / "data" / "base" / str(found[0])).iterdir()]


def empty_database(name: str) -> str:
    """Make a database without tables; return its URL."""
    server = _server()
    sql_on_server(server, f'CREATE DATABASE "{name}" TEMPLATE template0')
    return server.url.format(name)


def database_of(path: Path) -> str:
    """Return the URL of the database that stands for a file."""
    if path not in _databases:
        _databases[path] = "t" + hashlib.sha256(str(path).encode()).hexdigest()[:20]
        new_database(_databases[path])
    return _server().url.format(_databases[path])


def drop_databases_of(folder: Path) -> None:
    """Drop those that stand for files in a folder; whoever is still connected is cut off."""
    for path in [each for each in _databases if each.is_relative_to(folder)]:
        sql_on_server(_server(), f'DROP DATABASE "{_databases.pop(path)}" WITH (FORCE)')
