"""Services of two versions on one database: one at a time is upgraded, or all of them are stopped before."""

from __future__ import annotations

import ast
import asyncio
import shutil
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from bot.database import replicas
from bot.database.database import Execute
from bot.database.migrate import VERSIONS_DIR, NewerSchema, head_revision, is_additive, revision_chain
from bot.database.replicas import OtherVersions, ReplicaRow
from tests.support.postgres import need_postgres, new_database
from tests.support.postgres_sessions import opened

ADDED = """
import sqlalchemy as sa
from alembic import op
revision = "{name}"
down_revision = "{before}"
{mark}

def upgrade() -> None:
    op.add_column("addresses", sa.Column("c{name}", sa.Text(), nullable=False, server_default="grey"))
"""
MARK = "ADDITIVE = True"
READ = "SELECT * FROM addresses WHERE thread=:thread"


@pytest.fixture
def url() -> str:
    need_postgres()
    return new_database(f"mixed{uuid4().hex[:12]}")


def next_version(folder: Path, *marks: str) -> Path:
    """Return a copy of the migrations with a further one for each mark."""
    shutil.copytree(VERSIONS_DIR.parent, folder / "migrations", ignore=shutil.ignore_patterns("__pycache__"))
    before = head_revision()
    for number, mark in enumerate(marks):
        name = f"999{number}"
        text = ADDED.format(name=name, before=before, mark=mark)
        (folder / "migrations" / "versions" / f"{name}_added.py").write_text(text)
        before = name
    return folder / "migrations" / "versions"


def begin(url: str, versions: Path = VERSIONS_DIR) -> Any:
    """Prepare the tables as a service does that shares the database; return its session."""
    from bot.database.postgres_schema import prepare_schema
    from bot.database.postgres_session import connect, own_database

    session = connect(url)
    try:
        own_database(session, 1.0, shared=True)
        prepare_schema(session, url, versions=versions)
    except BaseException:
        session.close()
        raise
    return session


async def test_a_service_goes_on_while_another_one_adds_to_the_tables(url: str, tmp_path: Path) -> None:
    """Also one that begins afterwards, and with statements that were prepared for the tables before."""
    newer = next_version(tmp_path, MARK, MARK)

    def read(execute: Execute) -> list[dict[str, Any]]:
        return [dict(row) for row in execute(READ, {"thread": "a"})]

    async with opened(url, shared=True) as store:
        insert = "INSERT INTO addresses(thread, conversation) VALUES (:thread, 'c')"
        await store.run(lambda execute: execute(insert, {"thread": "a"}))
        for _ in range(5):  # it is prepared after some times
            await store.run(read)
        with closing(await asyncio.to_thread(begin, url, newer)):
            [row] = await store.run(read)
            assert (row["c9990"], row["c9991"]) == ("grey", "grey")
            await store.run(lambda execute: execute(insert, {"thread": "b"}))
            (await asyncio.to_thread(begin, url)).close()  # the earlier version again


async def test_a_change_that_breaks_others_waits_for_their_end(url: str, tmp_path: Path) -> None:
    newer = next_version(tmp_path, MARK, "")
    from bot.database.postgres_schema import OlderServices

    with closing(await asyncio.to_thread(begin, url)), pytest.raises(OlderServices, match=r"9991.*stop them"):
        await asyncio.to_thread(begin, url, newer)
    with closing(await asyncio.to_thread(begin, url, newer)), pytest.raises(NewerSchema, match="9991"):
        await asyncio.to_thread(begin, url)  # the earlier version again


async def test_services_of_a_new_version_that_begin_together_do_not_wait_for_each_other(
    url: str, tmp_path: Path
) -> None:
    """Who waits to look at the tables is none that works with them."""
    from bot.database.postgres_session import SCHEMA_LOCK, connect, own_database

    newer = next_version(tmp_path, "")
    with closing(connect(url)) as other, closing(connect(url)) as holder:
        own_database(other, 60.0, shared=True)
        holder.execute(f"SELECT pg_advisory_lock({SCHEMA_LOCK})")
        waits = asyncio.create_task(asyncio.to_thread(other.execute, f"SELECT pg_advisory_lock({SCHEMA_LOCK})"))
        waiting = "SELECT 1 FROM pg_locks WHERE locktype='advisory' AND NOT granted AND objid=%s"
        async with asyncio.timeout(60):
            while not holder.execute(waiting, (SCHEMA_LOCK,)).fetchall():
                await asyncio.sleep(0.01)
        (await asyncio.to_thread(begin, url, newer)).close()
        holder.execute(f"SELECT pg_advisory_unlock({SCHEMA_LOCK})")
        await waits


@pytest.mark.parametrize(("version", "fits"), [("1.2.9", True), ("1.3.0", False), ("2.2.3", False)])
async def test_only_versions_that_differ_in_the_last_number_work_together(
    url: str, version: str, *, fits: bool
) -> None:
    def register(execute: Execute, name: str, version: str) -> None:
        replicas.register(execute, ReplicaRow(name, f"host-{name}", 0, 1.0, version, "d"), alone=False)

    async with opened(url, shared=True) as store:
        await store.run(partial(register, name="one", version="1.2.3"))
        second = partial(register, name="two", version=version)
        if fits:
            await store.run(second)
            assert len(await store.run(replicas.living)) == 2
        else:
            with pytest.raises(OtherVersions, match=r"host-one \(1\.2\.3\).*stop all"):
                await store.run(second)
            assert [each.id for each in await store.run(replicas.living)] == ["one"]


def check_only_adds(source: str) -> None:
    """Raise AssertionError unless a migration only adds: tables, and columns that the version before may leave out."""
    tree = ast.parse(source)
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call)]
    of_op = [each for each in calls if ast.unparse(each.func).startswith("op.")]
    made = {ast.unparse(each.args[0]) for each in of_op if ast.unparse(each.func) == "op.create_table"}
    for each in of_op:
        name = ast.unparse(each.func)
        assert name in ("op.create_table", "op.create_index", "op.add_column"), ast.unparse(each)
        keywords = {found.arg for found in each.keywords}
        if name == "op.create_index" and ast.unparse(each.args[1]) not in made:
            assert "unique" not in keywords, ast.unparse(each)
        if name == "op.add_column":
            text = ast.unparse(each)
            assert "nullable=True" in text or "server_default=" in text, text
            assert not {"Constraint", "ForeignKey"} & set(text.split("(")), text


NEEDED = 'op.add_column("addresses", sa.Column("c", sa.Text(), nullable=False))'
UNIQUE = 'op.create_index("a", "addresses", ["conversation"], unique=True)'


@pytest.mark.parametrize("change", [NEEDED, UNIQUE, 'op.drop_column("addresses", "count")'])
def test_what_breaks_the_version_before_is_not_additive(change: str) -> None:
    check_only_adds(ADDED)
    with pytest.raises(AssertionError):
        check_only_adds(change)


def test_a_migration_that_is_called_additive_only_adds() -> None:
    for revision in filter(is_additive, revision_chain()):
        [file] = VERSIONS_DIR.glob(f"{revision}_*.py")
        check_only_adds(file.read_text())
