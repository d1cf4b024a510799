"""Schema versions: new equals migrated, older is backed up and migrated, newer is refused."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import tempfile
import time
from contextlib import closing
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory

from agent.turn.checkpointer import CREATE_TABLES_SQL
from bot.database import migrate
from tests.support.forked_services import python
from tests.support.schema_file import render_schema

EARLY = Path(__file__).with_name("schema-0025.sql")


def schema(path: Path) -> dict[str, str]:
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    connection.close()
    return {name: " ".join(sql.split()).replace(" ,", ",") for name, sql in rows}


def test_the_schema_file_is_what_the_migrations_build() -> None:
    text = migrate.SCHEMA_FILE.read_text()
    assert render_schema(text) == text, "run `make schema`"


def test_head_is_the_last_revision() -> None:
    assert ScriptDirectory(str(migrate.VERSIONS_DIR.parent)).get_current_head() == migrate.head_revision()


def test_a_current_database_is_not_changed(tmp_path: Path) -> None:
    migrate.migrate_database(tmp_path / "fawn.db")
    assert migrate.migrate_database(tmp_path / "fawn.db") is None
    assert not (tmp_path / "backups").exists()


# Case 89 of docs/cases.md
def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    migrate.migrate_database(tmp_path / "fawn.db")
    connection = sqlite3.connect(tmp_path / "fawn.db")
    connection.execute("UPDATE alembic_version SET version_num='9999'")
    connection.commit()
    connection.close()
    with pytest.raises(migrate.NewerSchema, match="9999"):
        migrate.migrate_database(tmp_path / "fawn.db")


# Case 89 of docs/cases.md
def test_an_older_database_is_backed_up_and_migrated(tmp_path: Path) -> None:
    """From the perspective of the next version, which has one more migration."""
    path = tmp_path / "fawn.db"
    migrate.migrate_database(path)
    versions = tmp_path / "migrations" / "versions"
    versions.mkdir(parents=True)
    for source in (migrate.VERSIONS_DIR.parent / "env.py", *migrate.VERSIONS_DIR.glob("[0-9]*.py")):
        target = versions if source.parent == migrate.VERSIONS_DIR else versions.parent
        (target / source.name).write_text(source.read_text())
    (versions / "9999_more.py").write_text(
        "import sqlalchemy as sa\nfrom alembic import op\nrevision = '9999'\n"
        f"down_revision = '{migrate.head_revision()}'\n"
        "def upgrade():\n    op.create_table('more', sa.Column('id', sa.Integer(), primary_key=True))\n"
    )
    backup = migrate.migrate_database(path, versions)
    assert backup is not None
    assert "more" not in schema(backup)
    assert "more" in schema(path)
    assert migrate.schema_revision(path) == "9999"


def early_database(path: Path) -> sqlite3.Connection:
    """Make a database of the earliest version that is upgraded."""
    connection = sqlite3.connect(path)
    connection.executescript(EARLY.read_text("utf-8"))
    return connection


def test_the_data_of_an_early_version_is_upgraded(tmp_path: Path) -> None:
    """Rows keep their numbers and words; what is new is worked out from them."""
    old, new = tmp_path / "old" / "fawn.db", tmp_path / "new.db"
    old.parent.mkdir()
    with closing(early_database(old)) as connection, connection:
        connection.execute("INSERT INTO addresses VALUES ('telegram//7/', 'telegram//7/#2', 2)")
        connection.execute("INSERT INTO memory_index VALUES ('likes tea', '', '', 'p')")
        connection.execute(
            "INSERT INTO outbox(id, key, kind, thread, payload, created) VALUES (7, 'k', 'say', 't', 'x', 0)"
        )
        connection.execute("DELETE FROM outbox")
        connection.execute("INSERT INTO conversations(key, thread, created, used) VALUES ('c', 't', 0, 0)")
        connection.execute(
            "INSERT INTO usage(id, run, conversation, agent, model, kind, input, output, cached, reasoning, seconds,"
            " at) VALUES (1, 1, 'c', 'lead', 'm', 'turn', 1, 1, 0, 0, 3, 10)"
        )
    backup = migrate.migrate_database(old)
    assert backup is not None
    assert migrate.schema_revision(backup) == "0025"
    migrate.migrate_database(new)
    assert schema(old) == schema(new)
    with closing(sqlite3.connect(old)) as connection:
        assert connection.execute("SELECT * FROM addresses").fetchall() == [("telegram//7/", "telegram//7/#2", 2)]
        assert connection.execute("SELECT text FROM memory_index WHERE memory_index MATCH 'tea'").fetchall()
        assert connection.execute("SELECT seq FROM sqlite_sequence WHERE name='outbox'").fetchall() == [(7,)]
        assert connection.execute("SELECT began FROM usage").fetchall() == [(7,)]
        exposed = connection.execute("SELECT conversation, private, untrusted, files FROM exposures").fetchall()
        assert exposed == [("c", 1, 1, 1)]


def test_a_database_before_the_first_migration_is_refused_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "fawn.db"
    migrate.migrate_database(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num='0012'")
    before = path.read_bytes()
    with pytest.raises(migrate.DatabaseFault, match="no longer upgrade"):
        migrate.migrate_database(path)
    assert path.read_bytes() == before


# Case 89 of docs/cases.md
@pytest.mark.slow
def test_a_migration_killed_at_any_step_is_completed_by_the_next_start() -> None:
    """Killed before every statement and every file operation, in a real process."""
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # what a kill leaves is the same on a disk, but slower
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        program = [*python(), "-m", "tests.support.killed_migration", folder, str(EARLY)]
        done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) > 30, "places to die"


@pytest.mark.parametrize("name", ["fawn.db", "checkpoints.db"])
def test_a_newer_or_damaged_database_is_reported_in_a_sentence(tmp_path: Path, name: str) -> None:
    migrate.prepare_databases(tmp_path)
    assert migrate.prepare_databases(tmp_path) is None
    (tmp_path / name).write_bytes(b"this is no database" * 1000)
    with pytest.raises(migrate.DatabaseFault, match="file is not a database"):
        migrate.prepare_databases(tmp_path)


def make_checkpoints(path: Path, rows: int = 3) -> None:
    """Make the file in which earlier versions kept the states of conversations."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA user_version=1")
        for sql in CREATE_TABLES_SQL:
            connection.execute(sql)
        for number in range(rows):
            values = (f"t{number}", "", "1", "k", b"state", "k", b"meta")
            connection.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            write = (f"t{number}", "", "1", "task", 0, "", "c", "k", b"value")
            connection.execute("INSERT INTO checkpoint_writes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", write)


def test_checkpoints_in_a_file_of_their_own_are_taken_over(tmp_path: Path) -> None:
    make_checkpoints(tmp_path / "checkpoints.db")
    migrate.prepare_databases(tmp_path)
    with closing(sqlite3.connect(tmp_path / "fawn.db")) as connection:
        assert connection.execute("SELECT thread, state FROM checkpoints").fetchall() == [
            ("t0", b"state"), ("t1", b"state"), ("t2", b"state")
        ]  # fmt: skip
        assert connection.execute("SELECT count(*) FROM checkpoint_writes").fetchall() == [(3,)]
    assert not [*tmp_path.glob("checkpoints*")]
    migrate.remove_upgrade_backups(tmp_path, time.time() + 60)
    assert not [*tmp_path.rglob("checkpoints*")]


def test_checkpoints_of_a_newer_version_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints.db"
    make_checkpoints(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=99")
    with pytest.raises(migrate.NewerSchema, match=r"checkpoints\.db has version 99"):
        migrate.prepare_databases(tmp_path)
    assert path.exists()


def test_subjects_of_roles_say_whether_they_are_a_person_or_a_chat(tmp_path: Path) -> None:
    path = tmp_path / "fawn.db"
    given = [
        ("telegram", "1/66", "person:1/66"),
        ("telegram", "66", "chat:66"),  # a direct chat, which has the id of its person
        ("slack", "C1", "chat:C1"),
        ("dingtalk", "cidAb/c==", "chat:cidAb/c=="),
        ("dingtalk", "corp/manager", "person:corp/manager"),
    ]
    with closing(early_database(path)) as connection, connection:
        connection.executemany(
            "INSERT INTO person_roles(channel, subject, role, name, giver, giver_name, given)"
            " VALUES (?, ?, 'r', '', '', '', 0)",
            [row[:2] for row in given],
        )
    migrate.migrate_database(path)
    with closing(sqlite3.connect(path)) as connection:
        assert {*connection.execute("SELECT channel, subject FROM person_roles")} == {(row[0], row[2]) for row in given}


def test_early_commands_in_the_background_name_their_tool(tmp_path: Path) -> None:
    with closing(early_database(tmp_path / "fawn.db")) as connection, connection:
        connection.executemany(
            "INSERT INTO tasks VALUES (NULL, ?1, 'command', 'done', '', '', '', '', 0, 0, '', '', ?1, ?2, '', 0, 0, 0,"
            " 0, '', 0)",
            [("my-skill", "python3 x.py"), ("make -j", "make -j 4")],
        )
    migrate.migrate_database(tmp_path / "fawn.db")
    with closing(sqlite3.connect(tmp_path / "fawn.db")) as connection:
        tools = connection.execute("SELECT title, tool FROM tasks ORDER BY id").fetchall()
    assert tools == [("my-skill", "run_skill"), ("make -j", "bash")]
