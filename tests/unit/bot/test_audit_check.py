"""`fawn audit`: it names the first row that was changed, cut or inserted, exports, and signs anchors."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from agent.messages import Thread
from agent.setting import Secret
from bot.__main__ import main
from bot.config.operations import AuditConfig
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Execute
from bot.database.dialect import EXTRA
from bot.service.audit_upkeep import sign_text
from tests.support.rehearsed_database import make_empty_database

ROWS = 9
SHIFT = "UPDATE audit SET seq=-seq WHERE seq>=4; UPDATE audit SET seq=1-seq WHERE seq<0"  # one number up
INSERT = """UPDATE audit SET seq=-seq WHERE seq>=4; UPDATE audit SET seq=1-seq WHERE seq<0;
    INSERT INTO audit VALUES (4, '{}', zeroblob(32))"""


class Log:
    """A database with an audit, which tests write and damage, and the program that reads it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = folder / "data" / "fawn.db"
        self.config = folder / "config.yaml"
        self.config.write_text("config_version: 1\naudit: {key: $AUDIT_KEY}\n")
        self.path.parent.mkdir()
        make_empty_database(self.path)
        self._capsys = capsys

    def run(self, work: str) -> None:
        """Run a script of statements."""
        with closing(sqlite3.connect(self.path)) as connection:
            connection.executescript(work)

    def write(self, *events: AuditEvent) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            for event in events:
                audit.record(self.execute_on(connection), event)

    def age(self, days: int) -> None:
        """Write the chain anew, as if all rows were older by so many days."""
        with closing(sqlite3.connect(self.path)) as connection, connection:
            before = audit.EMPTY
            for seq, body in connection.execute("SELECT seq, body FROM audit ORDER BY seq").fetchall():
                event = orjson.loads(body)
                stored = orjson.dumps(event | {"at": event["at"] - days * audit.DAY_MS}, option=orjson.OPT_SORT_KEYS)
                before = audit.chain_hash(before, seq, stored)
                connection.execute("UPDATE audit SET body=?, hash=? WHERE seq=?", (stored, before, seq))

    def prune(self, rows: int, days: int = 365, key: str = "") -> None:
        sign = partial(sign_text, settings=AuditConfig(key=Secret(key) if key else None))
        with closing(sqlite3.connect(self.path)) as connection, connection:
            assert audit.prune_rows(self.execute_on(connection), days, 100, sign) == rows

    def forge_pruning(self, seq: int, days: int = 365) -> None:
        """Delete the beginning, and write the row that retention would write."""
        with closing(sqlite3.connect(self.path)) as connection, connection:
            [(hash,)] = connection.execute("SELECT hash FROM audit WHERE seq=?", (seq,))
            what = {"seq": seq, "hash": hash.hex(), "days": days}
            audit.record(self.execute_on(connection), AuditEvent(AuditKind.PRUNED, what=what))
            connection.execute("INSERT INTO audit_anchors(seq, hash) VALUES (?, ?)", (seq, hash))
            connection.execute("DELETE FROM audit WHERE seq<=?", (seq,))

    def execute_on(self, connection: sqlite3.Connection) -> Execute:
        connection.row_factory = sqlite3.Row
        return lambda sql, values: [] if sql.startswith(EXTRA) else connection.execute(sql, values).fetchall()

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
    assert "Without an anchor, this does not show whether the end was cut" in log.verify()
    log.run("DELETE FROM audit; DELETE FROM audit_names")
    assert log.verify().startswith(f"The audit is valid: 0 rows, head 0:{'0' * 64}\n")


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
    assert "TAMPERED: row 9 differs from the anchor: the chain was rewritten" in log.verify(head)


def test_an_anchor_is_checked_after_retention_as_long_as_its_row_exists(log: Log) -> None:
    log.age(400)
    last = log.head()
    log.prune(ROWS - 1)
    said = log.verify(last)
    assert "is valid: 2 rows" in said
    assert "No anchor covers the 1 rows after row 9" in said
    assert "TAMPERED: row 9 differs from the anchor" in log.verify(f"9:{'0' * 64}")
    assert "Row 3 of an anchor was not compared: retention has deleted it.\nThe audit is valid: 2 rows" in log.verify(
        f"3:{'0' * 64}"
    )


@pytest.mark.parametrize("seq", [4, ROWS])
def test_a_forged_retention_does_not_hide_a_cut(log: Log, seq: int) -> None:
    """Only what is old enough to be deleted by retention can be cut."""
    head = log.head()
    log.forge_pruning(seq)
    fault = (
        f"TAMPERED: rows up to {seq} are missing, and retention did not delete them: the first row that is kept is not"
    )
    assert fault in log.verify()
    assert fault in log.verify(*([head] if seq < ROWS else []))


def test_a_pruning_is_compared_with_the_settings(log: Log) -> None:
    log.age(20)
    log.forge_pruning(4, days=10)
    assert "speaks of 10 days, and `audit.days` is 365" in log.verify()
    log.config.write_text("config_version: 1\naudit: {days: 0}\n")
    assert "speaks of 10 days, and `audit.days` is 0" in log.verify()
    log.config.write_text("config_version: 1\naudit: {days: 10}\n")
    assert "is valid: 6 rows" in log.verify()


def test_a_pruning_is_signed(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.age(400)
    monkeypatch.setenv("AUDIT_KEY", "k" * 40)
    log.prune(ROWS - 1, key="k" * 40)
    assert "is valid: 2 rows" in log.verify()
    monkeypatch.setenv("AUDIT_KEY", "another" * 6)
    assert "the row that says so is not signed with `audit.key`" in log.verify()


def test_a_deleted_name_is_seen(log: Log) -> None:
    log.run("DELETE FROM audit_names WHERE name='t:7'")
    said = log.verify()
    assert "TAMPERED: the name of pseudonym" in said
    assert "(row 1) was deleted, and nobody was forgotten" in said


def test_a_signed_anchor_shows_that_it_was_forged(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = log.head()
    monkeypatch.setenv("AUDIT_KEY", "k" * 40)
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
    assert [row["seq"] for row in rows] == [*range(1, 12)]  # the last one is the export's own
    with closing(sqlite3.connect(log.path)) as connection:
        bodies = [body for (body,) in connection.execute("SELECT body FROM audit ORDER BY seq")]
    before = audit.EMPTY
    for line, body, row in zip((tmp_path / "out").read_bytes().splitlines(), bodies, rows, strict=True):
        assert b'"event":' + body + b"}" in line
        before = audit.chain_hash(before, row["seq"], body)
        assert row["hash"] == before.hex()
    last = rows[-2]
    assert [last["names"][last["event"][field]] for field in ("who", "subject", "where")] == ["t:8", "t:7", "t/b/9/"]


def test_an_export_is_filtered(log: Log) -> None:
    log.write(AuditEvent(AuditKind.MESSAGE, Thread("t", "b", "9"), "8", subject="t:9"))
    for words, count in (
        (("--kind", "message"), 1),
        (("--who", "8"), 1),
        (("--who", "t:9"), 1),
        (("--who", "7"), 9),
        (("--who", "nobody"), 0),
        (("--since", "2020-01-01"), 10 + 6),  # with this export and the five before it
        (("--since", "2120-01-01"), 0),
    ):
        code, text = log.fawn("export", *words)
        assert (code, len(exported(text))) == (0, count), words
    assert log.fawn("export", "--kind", "nothing")[0] == 1
    assert "is not a time such as" in log.fawn("export", "--since", "soon")[1]


def test_a_forgotten_person_leaves_pseudonyms_and_a_valid_chain(log: Log) -> None:
    with closing(sqlite3.connect(log.path)) as connection, connection:
        audit.forget_person(log.execute_on(connection), "t", "7", [Thread("t", "b", "0"), Thread("t", "b", "1")])
    assert "is valid: 10 rows" in log.verify()
    rows = exported(log.fawn("export")[1])
    assert all(row["names"] == {} and len(row["event"]["who"]) == 32 for row in rows[:ROWS])


def test_a_missing_database_is_reported(log: Log) -> None:
    log.path.unlink()
    code, text = log.fawn("verify")
    assert (code, "does not contain a database" in text) == (1, True)
