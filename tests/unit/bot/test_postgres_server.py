"""The database on PostgreSQL, and what happens to its server and on the way: lost answers, TLS, poolers, unfit ones."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
import yaml

from agent.setting import Secret
from bench.journeys import TWICE, Found, Travel, register
from bot.admin.network_checks import check_database
from bot.config.database import DatabaseConfig
from bot.config.loader import load_config
from bot.config.schema import Config
from bot.database import audit
from bot.database.database import Database, DatabaseAway, Execute, Mark, StorageError
from bot.database.dialect import AdvisoryLock
from bot.database.migrate import VERSIONS_DIR, DatabaseFault, NewerSchema, head_revision
from bot.database.postgres_session import reading
from bot.database.replicas import forget_predecessors
from bot.database.replicas import register as register_replica
from bot.database.wake_ups import Written
from bot.main.startup import open_database
from bot.storage.outbox import enqueue_notice
from tests.fakes.server import until
from tests.support.engines import need
from tests.support.ports import free_port
from tests.support.postgres import (
    SETTINGS,
    PostgresServer,
    need_postgres,
    postgres_server,
    server_folder,
    sql_on_server,
    unprivileged,
)
from tests.support.postgres_sessions import replica

if TYPE_CHECKING:
    from bot.database.postgres import PostgresDatabase

ROOT = Path(__file__).parents[3]
TCP_REPAIR = 19  # linux/tcp.h; Python does not name it
INSERT = "INSERT INTO addresses(thread, conversation) VALUES (:thread, 'c')"


def opened(target: Any, **options: Any) -> PostgresDatabase:
    from bot.database.postgres import DatabaseServer, PostgresDatabase

    return PostgresDatabase(DatabaseServer(target, **options))


def insert(execute: Execute, thread: str) -> str:
    execute(INSERT, {"thread": thread})
    return thread


def threads(execute: Execute) -> list[str]:
    return [row["thread"] for row in execute("SELECT thread FROM addresses ORDER BY thread", {})]


# ------------------------------------------------------------ a lost answer


class CuttingProxy:
    """A way to the server's socket that cuts the connection at a COMMIT: before it, or before its answer.

    It also holds a statement until `released`.
    """

    def __init__(self, folder: Path, server: Path) -> None:
        self.cut = ""  # "before" or "after": the next COMMIT
        self.cuts = 0
        self.hold = b""  # how the statements begin that wait
        self.held, self.released = threading.Event(), threading.Event()
        self._server = server
        self._sockets: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                server = socket.socket(socket.AF_UNIX)
                self._sockets += [client, server]
                server.connect(str(self._server / ".s.PGSQL.5432"))
                threading.Thread(target=self._pass, args=(client, server), daemon=True).start()
                threading.Thread(target=self._answer, args=(server, client), daemon=True).start()

    def _pass(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError), closing_way(server):
            while data := client.recv(65536):
                if data == b"Q\0\0\0\x0bCOMMIT\0" and self.cut:
                    how, self.cut = self.cut, ""
                    self.cuts += 1
                    client.shutdown(socket.SHUT_RDWR)
                    if how == "before":
                        break
                if self.hold and self.hold in data:
                    self.held.set()
                    self.released.wait()
                server.sendall(data)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError), closing_way(client):
            while data := server.recv(65536):
                client.sendall(data)

    def close(self) -> None:
        self.released.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        for each in (self._listener, *self._sockets):
            each.close()


@contextmanager
def closing_way(target: socket.socket) -> Iterator[None]:
    """Say to the other end that nothing more comes."""
    try:
        yield
    finally:
        target.shutdown(socket.SHUT_WR)


@pytest.fixture
def proxy(url: str) -> Iterator[tuple[CuttingProxy, str]]:
    folder = Path("/tmp") / f"fawn-proxy-{uuid4().hex[:8]}"
    folder.mkdir()
    made = CuttingProxy(folder, server_folder())
    yield made, url.replace(str(server_folder()), str(folder))
    made.close()
    shutil.rmtree(folder)


async def test_a_commit_whose_answer_was_lost_counts_as_what_it_became(proxy: tuple[CuttingProxy, str]) -> None:
    way, url = proxy
    async with opened(url, away_seconds=0.0) as store:
        way.cut = "after"
        assert await store.run(partial(insert, thread="stored")) == "stored"
        way.cut = "before"
        with pytest.raises(StorageError):
            await store.run(partial(insert, thread="lost"))
        await store.run(partial(insert, thread="next"))
        assert await store.run(threads) == ["next", "stored"]
    assert way.cuts == 2


async def test_a_start_that_loses_its_connection_tries_again_with_one_database(
    proxy: tuple[CuttingProxy, str], tmp_path: Path
) -> None:
    way, url = proxy
    config = Config(data_dir=tmp_path, database=DatabaseConfig(url))
    way.cut = "before"  # what ends the last process is lost, as when the server restarts right after it was reached
    async with AsyncExitStack() as stack:
        assert (store := await open_database(config, stack, asyncio.Event(), lambda code: None))
        sessions = "SELECT count(*) AS n FROM pg_stat_activity WHERE datname=current_database()"
        assert (await store.run(lambda execute: execute(sessions, {})))[0]["n"] == 1
        assert (await store.run(audit.read_head))[0] == 1  # it is recorded once that the service has started
    assert way.cuts == 1


# ------------------------------------------------------------ a connection that nobody wants any more

# An open connection that is garbage fails these tests by its ResourceWarning.


async def test_a_lease_that_is_given_up_while_it_connects_closes_its_connection(
    proxy: tuple[CuttingProxy, str],
) -> None:
    from bot.database.postgres_session import PostgresLease

    way, url = proxy
    way.hold = b"SET synchronous_commit"
    lease = PostgresLease(url, "me")
    renewing = asyncio.create_task(lease.renew())
    await until(way.held.is_set, what="a new connection")
    renewing.cancel()
    way.released.set()
    with suppress(asyncio.CancelledError):
        await renewing
    await lease.close()
    del renewing
    gc.collect()


async def test_a_start_that_is_given_up_while_it_connects_closes_its_connections(
    proxy: tuple[CuttingProxy, str],
) -> None:
    way, url = proxy
    way.hold = b"pg_advisory_lock"
    before = set(threading.enumerate())
    starting = asyncio.create_task(opened(url).__aenter__())
    await until(way.held.is_set, what="a start that owns nothing yet")
    [thread] = [each for each in threading.enumerate() if each not in before and each.name.startswith("database")]
    starting.cancel()
    with suppress(asyncio.CancelledError):
        await starting
    way.released.set()
    await until(lambda: not thread.is_alive(), what="the end of the start")
    gc.collect()


# ------------------------------------------------------------ a server that ends, or is not there


async def test_a_server_that_restarts_is_waited_for() -> None:
    from bot.database.postgres_session import reading

    with postgres_server() as server:
        sql_on_server(server, "CREATE DATABASE fawn")
        store = opened(server.url.format("fawn"), away_seconds=4.0)
        async with store:
            await store.run(partial(insert, thread="before"))
            server.stop()
            with pytest.raises(DatabaseAway):
                await store.run(partial(insert, thread="never"))
            lost_at = store.lost_at
            with pytest.raises(DatabaseAway):  # at once: the time is that of an outage
                await store.run(partial(insert, thread="never, either"))
            assert store.lost_at == lost_at is not None
            server.start()
            await store.run(partial(insert, thread="after"))
            server.stop()
            waiting = asyncio.create_task(store.run(partial(insert, thread="waited")))
            await until(lambda: store.lost_at is not None, what="a lost connection")
            server.start()
            await waiting
            assert await store.run(threads) == ["after", "before", "waited"]
        with reading(server.url.format("fawn"), snapshot=False) as execute:
            server.stop()
            with pytest.raises(StorageError):
                threads(execute)


@pytest.mark.parametrize(
    ("statement", "waits_for"),
    [(f"SELECT pg_advisory_lock({AdvisoryLock.SCHEMA})", "advisory"), ("LOCK TABLE alembic_version", "relation")],
    ids=["lock", "tables"],
)
async def test_a_start_that_is_cut_off_has_not_been_refused(url: str, statement: str, waits_for: str) -> None:
    """As where the server restarts right after it was reached: the start is tried again."""
    from bot.database.postgres_session import connect

    cut = (
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE NOT granted AND locktype=%s"
        " AND database=(SELECT oid FROM pg_database WHERE datname=current_database())"
    )
    with closing(connect(url)) as holder, closing(connect(url)) as cutter:
        holder.execute("BEGIN")
        holder.execute(statement)
        store = opened(url, shared=True)
        starting = asyncio.create_task(store.__aenter__())
        await until(lambda: cutter.execute(cut, (waits_for,)).fetchall(), what="a start that waits")
        with pytest.raises(DatabaseAway):
            await starting


async def test_a_server_that_is_away_is_told_from_one_that_refuses(url: str) -> None:
    with pytest.raises(DatabaseAway):
        async with opened("postgresql://fawn@127.0.0.1:9/fawn"):
            pass
    with pytest.raises(StorageError, match="does not exist") as caught:
        async with opened(url.replace("@/t", "@/no")):
            pass
    assert type(caught.value) is StorageError


def refuse_once(listener: socket.socket, folder: Path) -> None:
    """Answer a connection as a server that starts, which is up for the next one: the server itself is at its place.

    postgresql.org/docs/15/protocol-message-formats.html, ErrorResponse.
    """
    with closing(listener), closing(listener.accept()[0]) as client:
        client.recv(65536)
        (up := folder / "up").symlink_to(server_folder() / ".s.PGSQL.5432")
        up.replace(folder / ".s.PGSQL.5432")
        fields = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0"
        client.sendall(b"E" + (len(fields) + 4).to_bytes(4, "big") + fields)


async def test_a_server_that_comes_up_just_then_refuses_nobody(url: str) -> None:
    """It is there when it is asked why the connection failed."""
    with tempfile.TemporaryDirectory(prefix="fawn-", dir="/tmp") as made:
        folder, listener = Path(made), socket.socket(socket.AF_UNIX)
        listener.bind(str(folder / ".s.PGSQL.5432"))
        listener.listen()
        refusing = threading.Thread(target=refuse_once, args=(listener, folder))
        refusing.start()
        async with opened(url.replace(str(server_folder()), made)) as store:
            assert await store.run(threads) == []
        refusing.join()


async def test_a_machine_that_vanished_keeps_the_database_for_some_seconds_only() -> None:
    from bot.database.postgres_session import connect, own_database

    need("" if os.geteuid() == 0 else "Only root ends a connection without a word")
    with postgres_server(f"{SETTINGS} listen_addresses=127.0.0.1 port={(port := free_port())}"):
        url = f"postgresql://fawn@127.0.0.1:{port}/postgres"
        gone = connect(url)
        own_database(gone, 1.0)
        with socket.socket(fileno=os.dup(gone.pgconn.socket)) as way:  # its end is not sent, as where power is lost
            way.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)  # else the server asks for that at once
            way.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
        gone.close()
        with closing(connect(url)) as heir:
            await asyncio.to_thread(own_database, heir, 20.0)


# ------------------------------------------------------------ databases that do not fit


@pytest.mark.parametrize(
    ("options", "said"),
    [("ENCODING 'UTF8' LOCALE 'C'", "letters of English"), ("ENCODING 'SQL_ASCII' LOCALE 'C'", "SQL_ASCII")],
)
async def test_a_database_that_does_not_know_letters_is_refused(url: str, options: str, said: str) -> None:
    name = f"u{uuid4().hex[:12]}"
    sql_on_server(url, f"CREATE DATABASE {name} {options} TEMPLATE template0")
    with pytest.raises(DatabaseFault, match=said):
        async with opened(url.replace(url.partition("@/")[2].partition("?")[0], name)):
            pass


# ------------------------------------------------------------ upgrades

MIGRATION = """
import sqlalchemy as sa
from alembic import op
revision = "9990"
down_revision = "{head}"


def upgrade() -> None:
    with op.batch_alter_table("addresses") as table:
        table.add_column(sa.Column("colour", sa.Text(), nullable=False, server_default="grey"))
    {more}
"""


def versions(folder: Path, more: str = "pass") -> Path:
    """Return a copy of the migrations with one more."""
    shutil.copytree(VERSIONS_DIR.parent, folder / "migrations", ignore=shutil.ignore_patterns("__pycache__"))
    text = MIGRATION.format(head=head_revision(), more=more)
    (folder / "migrations" / "versions" / "9990_colours.py").write_text(text)
    return folder / "migrations" / "versions"


async def test_tables_from_before_the_first_migration_are_refused_unchanged(url: str) -> None:
    set_revision = "UPDATE alembic_version SET version_num=:revision"
    async with opened(url) as store:
        await store.run(lambda execute: execute(set_revision, {"revision": "0127"}))
    with pytest.raises(DatabaseFault, match=r"before 0\.1 made these tables \(0127\)"):
        async with opened(url):
            pass


async def test_tables_of_an_earlier_version_are_upgraded_whole_or_not_at_all(url: str, tmp_path: Path) -> None:
    from bot.database.postgres_schema import read_revision, upgrade_tables

    async with opened(url) as store:
        await store.run(partial(insert, thread="a"))
    broken = versions(tmp_path / "broken", "op.execute('SELECT 1/0')")
    with pytest.raises(Exception, match="division"):
        await asyncio.to_thread(upgrade_tables, head_revision(), url, broken)
    async with opened(url) as store:
        assert await store.run(read_revision) == head_revision()
    await asyncio.to_thread(upgrade_tables, head_revision(), url, versions(tmp_path / "good"))
    from bot.database.postgres_session import reading

    with reading(url, snapshot=True) as execute:
        assert read_revision(execute) == "9990"
        assert [row["colour"] for row in execute("SELECT colour FROM addresses", {})] == ["grey"]
    with pytest.raises(NewerSchema):
        async with opened(url):
            pass


# ------------------------------------------------------------ TLS


def test_a_server_elsewhere_has_to_prove_who_it_is() -> None:
    here = DatabaseConfig("postgresql://fawn@/fawn?host=/run/postgresql").connection()
    assert "sslmode" not in here
    away = DatabaseConfig("postgresql://fawn@db.example/fawn", password=Secret("p")).connection()
    assert (away["sslmode"], away["sslrootcert"], away["password"]) == ("verify-full", "system", "p")
    own = DatabaseConfig("postgresql://fawn@db.example/fawn?sslmode=require", ca_file="ca.pem").connection()
    assert own == {"conninfo": "postgresql://fawn@db.example/fawn?sslmode=require"}


def make_certificates(folder: Path) -> None:
    """Make an authority `ca.pem`, another one `other.pem`, and a certificate of the first for db.test."""
    run = partial(subprocess.run, cwd=folder, check=True, capture_output=True)
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    for name in ("ca", "other"):
        run([*new, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}"])
    more = ["-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "subjectAltName=DNS:db.test"]
    run([*new, *more, "-keyout", "server.key", "-out", "server.pem", "-subj", "/CN=db.test"])


async def test_only_a_certificate_of_the_named_authority_and_host_is_taken(tmp_path: Path) -> None:
    port = free_port()
    need_postgres()
    server = PostgresServer(SETTINGS)
    try:
        make_certificates(server.folder)
        own = server.folder / "own"
        own.mkdir()
        for name in ("server.key", "server.pem"):
            shutil.move(server.folder / name, own / name)
            shutil.chown(own / name, "nobody", "nogroup")
            (own / name).chmod(0o600)
        shutil.chown(own, "nobody", "nogroup")
        server.set(listen_addresses="127.0.0.1", port=str(port), ssl="on")
        server.set(ssl_cert_file=str(own / "server.pem"), ssl_key_file=str(own / "server.key"))
        server.start()
        for host, ca, fits in (("db.test", "ca", True), ("db.test", "other", False), ("else.test", "ca", False)):
            url = f"postgresql://fawn@{host}:{port}/postgres?hostaddr=127.0.0.1&sslmode=verify-full"
            target = DatabaseConfig(url, ca_file=str(server.folder / f"{ca}.pem")).connection()
            if fits:
                async with opened(target) as store:
                    sql = "SELECT ssl FROM pg_stat_ssl WHERE pid=pg_backend_pid()"
                    assert (await store.run(lambda execute: execute(sql, {})))[0]["ssl"]  # noqa: B023 — run at once
            else:
                with pytest.raises(StorageError, match="certificate") as caught:
                    async with opened(target):
                        pass
                assert type(caught.value) is StorageError, "it is not away: waiting for it would be in vain"
    finally:
        server.remove()


# ------------------------------------------------------------ a pooler


def answers(path: Path) -> bool:
    """Return whether a program listens on a socket: its file is there a moment before."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


@contextmanager
def pooler(server: Path) -> Iterator[str]:
    """Run PgBouncer in transaction mode in front of a server's socket; yield its address with a place for a name."""
    program = shutil.which("pgbouncer")
    need("" if program else "PgBouncer is not there (on Debian: apt install pgbouncer)")
    folder = Path("/tmp") / f"fawn-pooler-{uuid4().hex[:8]}"
    folder.mkdir()
    (folder / "users").write_text('"fawn" ""\n')
    (folder / "ini").write_text(
        f"[databases]\n* = host={server} user=fawn\n[pgbouncer]\nlisten_addr =\nunix_socket_dir = {folder}\n"
        f"auth_type = trust\nauth_file = {folder}/users\npool_mode = transaction\nlisten_port = 5432\n"
    )
    shutil.chown(folder, "nobody", "nogroup")
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *unprivileged(), str(program), "ini"],
            cwd=folder, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        while not answers(folder / ".s.PGSQL.5432"):
            assert process.poll() is None, (folder / "log").read_text()
            threading.Event().wait(0.02)
        yield f"postgresql://fawn@/{{}}?host={folder}"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


def is_owned(url: str) -> bool:
    from bot.database.postgres_session import owner_address, reading

    with reading(url, snapshot=False) as execute:
        return bool(owner_address(execute))


async def test_behind_a_pooler_one_session_with_the_server_itself_keeps_others_away(url: str) -> None:
    from bot.database.data_lock import DatabaseInUse
    from bot.database.postgres_session import PoolerFound

    name = url.partition("@/")[2].partition("?")[0]
    with pooler(server_folder()) as pooled:
        with pytest.raises(PoolerFound):
            async with opened(pooled.format(name)):
                pass
        async with opened(pooled.format(name), session=url, away_seconds=0.0) as store:
            await asyncio.gather(*(store.run(partial(insert, thread=str(n))) for n in range(30)))
            assert len(await store.run(threads)) == 30
            with pytest.raises(DatabaseInUse):
                async with opened(url, owner_seconds=0.05):
                    pass
            owned = "database=(SELECT oid FROM pg_database WHERE datname=current_database())"
            kill = f"SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype='advisory' AND {owned}"  # noqa: S608 — a constant
            sql_on_server(url, kill)
            await until(lambda: not is_owned(url), what="the end of that session")
            with pytest.raises(StorageError, match="lock"):
                await store.run(partial(insert, thread="without the lock"))
            await store.run(partial(insert, thread="again"))
            assert "without the lock" not in await store.run(threads)


async def test_behind_a_pooler_the_last_transaction_of_a_process_keeps_its_lease(url: str) -> None:
    """Also where its session with the server itself has ended: what it commits may name the process as an owner."""
    name = url.partition("@/")[2].partition("?")[0]
    process = "classid=:lock AND objid=CAST(CAST(hashtext(:id) AS bigint) & 4294967295 AS oid)"
    count = f"SELECT count(*) FROM pg_locks WHERE {process}"  # noqa: S608 — constants
    keeper = f"SELECT pid FROM pg_locks WHERE {process} INTERSECT SELECT pid FROM pg_locks WHERE objid=:owner"  # noqa: S608 — constants
    end = "SELECT pg_terminate_backend(pid) FROM"

    def seat(execute: Execute, store: Database) -> None:
        register_replica(execute, replace(replica(store), data_lock="a"), alone=False)

    async def sessions(of: Database, sql: str) -> int:
        values = {"lock": AdvisoryLock.PROCESS, "owner": AdvisoryLock.OWNER, "id": before.me}
        used = {key: value for key, value in values.items() if f":{key}" in sql}
        return int((await of.run(lambda execute: execute(sql, used)))[0][0])

    with pooler(server_folder()) as pooled:
        async with opened(url, shared=True) as after, asyncio.timeout(60):
            before = opened(pooled.format(name), session=url, shared=True, away_seconds=0.0)
            async with before:
                await before.run(partial(seat, store=before))
                await after.run(partial(seat, store=after))
                last = asyncio.create_task(before.run(lambda execute: execute("SELECT pg_sleep(60)", {})))
                while await sessions(after, count) < 2:
                    await asyncio.sleep(0.05)
                assert await sessions(after, f"{end} ({keeper}) AS keeper")
                while await sessions(after, count) > 1:
                    await asyncio.sleep(0.05)
                forget = partial(forget_predecessors, id=after.me)
                assert await after.run(forget) == ([], True)
                await sessions(after, f"{end} pg_locks WHERE {process}")
                with pytest.raises(StorageError):
                    await last
                while await sessions(after, count):
                    await asyncio.sleep(0.05)
                assert await after.run(forget) == ([before.me], False)


async def test_several_processes_behind_a_pooler_do_everything_once_and_wake_each_other(url: str) -> None:
    from bot.database.data_lock import DatabaseInUse

    name = url.partition("@/")[2].partition("?")[0]
    with pooler(server_folder()) as pooled:
        behind = partial(opened, pooled.format(name), session=url, shared=True)
        async with behind() as one, behind() as two:
            for store in (one, two):
                await register(store)
            with pytest.raises(DatabaseInUse):
                async with opened(url, owner_seconds=0.05):
                    pass
            found = [Found(), Found()]
            await asyncio.gather(*(Travel(store, each).run(2.0) for store, each in zip((one, two), found, strict=True)))
            assert all(each.runs for each in found)
            assert (await one.run(lambda execute: execute(TWICE, {})))[0][0] == 0
            rows, before = await two.run(partial(audit.read_page, after=0, limit=100_000)), audit.EMPTY
            assert len(rows) >= 3 * sum(each.runs for each in found)
            for number, row in enumerate(rows, 1):
                assert (row.seq, row.hash) == (number, before := audit.chain_hash(before, number, row.body))
            woken: list[Mark] = []
            two.follow(woken.extend)
            notice = partial(enqueue_notice, thread="telegram/1/42/", text="words", key="words", now=1.0)
            await one.run(notice)
            await until(lambda: any(kind is Written.OUTBOX for kind, _name in woken), what="a wake-up from the other")


# ------------------------------------------------------------ a server that takes no writes


async def test_a_standby_and_a_read_only_server_are_named_by_the_check_and_at_a_start(tmp_path: Path) -> None:
    with postgres_server() as server:
        sql_on_server(server, "CREATE DATABASE fawn TEMPLATE template0")
        url = server.url.format("fawn")
        async with opened(url):
            pass
        sql_on_server(server, "ALTER DATABASE fawn SET default_transaction_read_only=on")
        await assert_refused(url, tmp_path, "takes no writes (default_transaction_read_only")
        sql_on_server(server, "ALTER DATABASE fawn RESET default_transaction_read_only")
        server.stop()
        (server.folder / "data" / "standby.signal").touch()
        server.start()
        await assert_refused(url, tmp_path, "is a standby")


async def assert_refused(url: str, folder: Path, words: str) -> None:
    """Assert that a start and `fawn check` say why the server is refused."""
    with pytest.raises(DatabaseFault) as caught:
        async with opened(url):
            pass
    assert words in str(caught.value)
    [finding] = await check_database(Config(data_dir=folder, database=DatabaseConfig(url)), served=False)
    assert (finding.state, words in finding.text) == ("fault", True), finding


# ------------------------------------------------------------ what compose.yaml ships


async def test_the_server_of_compose_has_the_letters_and_the_lines_beside_it_reach_it(tmp_path: Path) -> None:
    """The image is not at hand: its initdb gets the same words here, and its user and database have the same names."""
    need_postgres()
    text = (ROOT / "compose.yaml").read_text("utf-8")
    environment = yaml.safe_load(text)["services"]["postgres"]["environment"]
    [section] = re.findall(r"(?m)^# +(database: \{.*\})$", text)
    (tmp_path / "config.yaml").write_text(f"config_version: 1\n{section}\n")
    database = load_config(tmp_path / "config.yaml", {"POSTGRES_PASSWORD": "sesame"}).database
    found = database.connection()
    assert database.shown == f"postgres/{environment['POSTGRES_DB']}", "the service's name is that of its host"
    assert f"//{environment['POSTGRES_USER']}@" in found["conninfo"]
    assert (found["password"], found.get("sslmode")) == ("sesame", None), "what the URL says about TLS is obeyed"
    server = PostgresServer(made_with=environment["POSTGRES_INITDB_ARGS"])
    try:
        server.start()
        sql_on_server(server, f"CREATE DATABASE {environment['POSTGRES_DB']}")
        async with opened(server.url.format(environment["POSTGRES_DB"])) as store:
            await store.run(partial(insert, thread="a"))
    finally:
        server.remove()


# ------------------------------------------------------------ a loss while a statement is under way

SLEEP = "UPDATE addresses SET conversation=conversation WHERE (SELECT count(*) FROM pg_sleep(60)) > 1"
SLEEPING = "SELECT 1 FROM pg_stat_activity WHERE wait_event='PgSleep'"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
async def test_the_end_of_the_server_while_a_statement_is_under_way_is_the_reason_of_its_failure(
    how: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    def work(execute: Execute) -> None:
        insert(execute, "kept")
        execute(SLEEP, {})

    with postgres_server() as server:
        sql_on_server(server, "CREATE DATABASE fawn")
        url = server.url.format("fawn")
        async with opened(url, away_seconds=0.5) as store:
            task = asyncio.create_task(store.run(work))
            with reading(url, snapshot=False) as execute:
                await until(lambda: execute(SLEEPING, {}), what="the statement that sleeps")
            await asyncio.to_thread(server.stop, how)
            with pytest.raises(DatabaseAway):
                await task
    first = next(each.getMessage() for each in caplog.records if "store.connection_lost" in each.getMessage())
    assert "server closed the connection" in first or "terminating connection" in first
