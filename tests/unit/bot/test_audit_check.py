"""`fawn audit`: it names the first row that was changed, cut or inserted, exports, and signs anchors."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent.messages import Thread
from bot.__main__ import main
from bot.storage import audit
from bot.storage.audit import AuditEvent, AuditKind
from bot.storage.database import Execute
from bot.storage.migrate import migrate_database

ROWS = 9
SHIFT = "UPDATE audit SET seq=-seq WHERE seq>=4; UPDATE audit SET seq=1-seq WHERE seq<0"  # one number up
INSERT = """UPDATE audit SET seq=-seq WHERE seq>=4; UPDATE audit SET seq=1-seq WHERE seq<0;
    INSERT INTO audit VALUES (4, '{}', zeroblob(32))"""

pytestmark = pytest.mark.usefixtures("process_settings_restored")  # `main` runs in this process


class Log:
    """A database with an audit, which tests write and damage, and the program that reads it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = folder / "data" / "fawn.db"
        self.config = folder / "config.yaml"
        self.config.write_text("config_version: 1\naudit: {key: $AUDIT_KEY}\n")
        self.path.parent.mkdir()
        migrate_database(self.path)
        self._capsys = capsys

    def run(self, work: str) -> None:
        """Run a script of statements."""
        with closing(sqlite3.connect(self.path)) as connection:
            connection.executescript(work)

    def write(self, *events: AuditEvent) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            for event in events:
                audit.record(self.execute_on(connection), event)

    def prune(self, rows: int) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            assert audit.prune_rows(self.execute_on(connection), time.time() + 9, rows) == rows

    def execute_on(self, connection: sqlite3.Connection) -> Execute:
        connection.row_factory = sqlite3.Row
        return lambda sql, values: connection.execute(sql, values).fetchall()

    def fawn(self, *arguments: str) -> tuple[int, str]:
        code = main(["audit", *arguments, "--config", str(self.config)])
        said = self._capsys.readouterr()
        return code, said.out + said.err

    def verify(self, *anchors: str) -> str:
        """Return what the program says; it must agree with its exit code."""
        code, text = self.fawn("verify", *(word for anchor in anchors for word in ("--anchor", anchor)))
        assert code == int("valid:" not in text)
        return text

    def head(self) -> str:
        code, text = self.fawn("head")
        assert code == 0
        return text.strip()


@pytest.fixture
def log(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Log:
    monkeypatch.delenv("AUDIT_KEY", raising=False)
    made = Log(tmp_path, capsys)
    made.write(*(AuditEvent(AuditKind.COMMAND, Thread("t", "b", f"{n % 2}"), "7", result=f"{n}") for n in range(ROWS)))
    return made


def test_an_untouched_audit_is_valid_and_may_be_empty(log: Log) -> None:
    head = log.head()
    assert log.verify(head, head) == f"The audit is valid: 9 rows, head {head}\n"
    log.run("DELETE FROM audit")
    assert log.verify() == f"The audit is valid: 0 rows, head 0:{'0' * 64}\n"


@pytest.mark.parametrize(
    ("damage", "fault", "valid"),
    [
        ("UPDATE audit SET body=replace(body, '7', '8') WHERE seq=5", "row 5 was changed", 4),
        ("UPDATE audit SET hash=zeroblob(32) WHERE seq=9", "row 9 was changed", 8),
        ("DELETE FROM audit WHERE seq=4", "row 4 was cut", 3),
        ("DELETE FROM audit WHERE seq BETWEEN 4 AND 6", "rows 4 to 6 were cut", 3),
        ("DELETE FROM audit WHERE seq=1", "row 1 was cut", 0),
        ("DELETE FROM audit WHERE seq=4; UPDATE audit SET seq=seq-1 WHERE seq>4", "row 4 was changed or inserted", 3),
        ("UPDATE audit SET seq=-3 WHERE seq=3; UPDATE audit SET seq=3 WHERE seq=4; UPDATE audit SET seq=4 WHERE seq=-3",
         "row 3 was changed", 2),
        (INSERT, "row 4 was changed or inserted", 3),
        ("INSERT INTO audit VALUES (-1, '{}', zeroblob(32))", "row -1 was inserted before the first one", 0),
        ("UPDATE audit_names SET name='t:8' WHERE name='t:7'", "the name of pseudonym", 9),
        ("DELETE FROM audit WHERE seq<4; INSERT INTO audit_anchors SELECT 3, hash FROM audit WHERE seq=4",
         "row 4 was changed", 0),
    ],
)  # fmt: skip
def test_the_first_row_that_was_tampered_with_is_named(log: Log, damage: str, fault: str, valid: int) -> None:
    log.run(damage)
    assert f"TAMPERED: {fault}" in (said := log.verify())
    assert f"The {valid} rows before are valid." in said


def test_an_inserted_row_that_continues_the_chain_is_named(log: Log) -> None:
    log.run(SHIFT)
    with closing(sqlite3.connect(log.path)) as connection, connection:
        [(before,)] = connection.execute("SELECT hash FROM audit WHERE seq=3")
        body = b'{"kind":"message"}'
        connection.execute("INSERT INTO audit VALUES (4, ?, ?)", (body, audit.chain_hash(before, 4, body)))
    assert "TAMPERED: row 4 was inserted" in log.verify()


def test_a_moved_anchor_does_not_hide_a_cut(log: Log) -> None:
    log.run("INSERT INTO audit_anchors SELECT seq, hash FROM audit WHERE seq=3; DELETE FROM audit WHERE seq<=3")
    assert "TAMPERED: rows up to 3 are missing, and no row says that retention deleted them" in log.verify()


def test_an_anchor_shows_a_cut_tail_and_a_chain_that_was_written_anew(log: Log) -> None:
    head = log.head()
    log.run("DELETE FROM audit WHERE seq>7")
    assert "is valid: 7 rows" in log.verify()
    assert "TAMPERED: row 8 and later ones were cut: an anchor has row 9" in log.verify(head)
    log.write(*[AuditEvent(AuditKind.MESSAGE)] * 4)
    assert "is valid: 11 rows" in log.verify()
    assert "TAMPERED: row 9 differs from the anchor: the chain was written anew" in log.verify(head)


def test_an_anchor_is_checked_after_retention_as_long_as_its_row_exists(log: Log) -> None:
    early, last = log.head(), log.head()
    log.write(AuditEvent(AuditKind.MESSAGE))
    log.prune(ROWS)
    assert "is valid: 2 rows" in log.verify(last)
    assert "TAMPERED: row 9 differs from the anchor" in log.verify(f"9:{'0' * 64}")
    log.prune(1)
    assert "Row 9 of an anchor was not compared: retention has deleted it.\nThe audit is valid: 2 rows" in log.verify(
        early
    )


def test_a_signed_anchor_shows_that_it_was_forged(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = log.head()
    monkeypatch.setenv("AUDIT_KEY", "k" * 20)
    signed = log.head()
    assert signed.startswith(f"{plain}:")
    assert "is valid: 9 rows" in log.verify(plain, signed)
    assert "the signature of anchor 9 is wrong" in log.verify(f"{signed[:-1]}{'0' if signed[-1] != '0' else '1'}")
    monkeypatch.delenv("AUDIT_KEY")
    assert "this anchor is signed: set `audit.key`" in log.verify(signed)
    assert "abc is not an anchor" in log.verify("abc")


def exported(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_an_export_has_the_stored_bytes_and_the_names(log: Log, tmp_path: Path) -> None:
    log.write(AuditEvent(AuditKind.MESSAGE, Thread("t", "b", "9"), "8", subject="t:7"))
    code, _ = log.fawn("export", "-o", str(tmp_path / "out"))
    assert code == 0
    rows = exported((tmp_path / "out").read_text())
    assert [row["seq"] for row in rows] == [*range(1, 11)]
    with closing(sqlite3.connect(log.path)) as connection:
        bodies = [body for (body,) in connection.execute("SELECT body FROM audit ORDER BY seq")]
    before = audit.EMPTY
    for line, body, row in zip((tmp_path / "out").read_bytes().splitlines(), bodies, rows, strict=True):
        assert b'"event":' + body + b"}" in line
        before = audit.chain_hash(before, row["seq"], body)
        assert row["hash"] == before.hex()
    last = rows[-1]
    assert [last["names"][last["event"][field]] for field in ("who", "subject", "where")] == ["t:8", "t:7", "t/b/9/"]


def test_an_export_is_filtered(log: Log) -> None:
    log.write(AuditEvent(AuditKind.MESSAGE, Thread("t", "b", "9"), "8", subject="t:9"))
    for words, count in (
        (("--kind", "message"), 1),
        (("--who", "8"), 1),
        (("--who", "t:9"), 1),
        (("--who", "7"), 9),
        (("--who", "nobody"), 0),
        (("--since", "2020-01-01"), 10),
        (("--since", "2120-01-01"), 0),
    ):
        code, text = log.fawn("export", *words)
        assert (code, len(exported(text))) == (0, count), words
    assert log.fawn("export", "--kind", "nothing")[0] == 1
    assert "is not a time such as" in log.fawn("export", "--since", "soon")[1]


def test_a_forgotten_person_leaves_pseudonyms_and_a_valid_chain(log: Log) -> None:
    with closing(sqlite3.connect(log.path)) as connection, connection:
        audit.forget_person(log.execute_on(connection), "t", "7", [Thread("t", "b", "0"), Thread("t", "b", "1")])
    assert "is valid: 9 rows" in log.verify()
    rows = exported(log.fawn("export")[1])
    assert all(row["names"] == {} and len(row["event"]["who"]) == 32 for row in rows)


def test_a_missing_database_is_reported(log: Log) -> None:
    log.path.unlink()
    code, text = log.fawn("verify")
    assert (code, "does not contain a database" in text) == (1, True)
