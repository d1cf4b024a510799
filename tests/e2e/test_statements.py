"""Every statement of a running service finds its rows in growing tables by an index."""

from __future__ import annotations

import asyncio
import operator
import re
import sqlite3
import sys
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

from tests.fakes.model import FakeModel
from tests.fakes.server import until
from tests.fakes.telegram import JANE, FakeTelegram
from tests.support.service_process import Service, ask
from tests.support.traced_service import DURABLE, LAZY

# A row a person and a row a thread, all of which only retention reads, once an hour: an index would cost every message.
# `plan_holds` has the plans at work. `budgets` has the counters of the present periods, which only a start resets.
SMALL = {
    *("people", "person_roles", "account_links", "audit_names", "alembic_version", "budgets", "languages"),
    "plan_holds",
    "budget_holds",  # of the calls under way
    "replicas",  # the processes that work on the database
    "channel_state",  # read whole at a start: by whose key it is stored
    "reply_handles",  # likewise; they end within a day
}
WRITES = {"calls": [{"name": "write_file", "args": {"path": "/mnt/user-data/outputs/a.txt", "content": "a"}}]}
NOTE = {"path": "/mnt/user-data/workspace/a.txt", "content": "a", "append": True}  # an effect that happens once
NOTES = {"calls": [{"name": "write_file", "args": NOTE}]}
FIVE_NOTES = [{"calls": [{"name": "write_file", "args": {**NOTE, "content": each}}]} for each in "abcde"]
SETTINGS = {"limits": {"live_turns": 1}, "sandbox": {"provider": "none"}}
AGES = {
    "inbox": "received",
    "outbox": "created",
    "posts": "created",
    "runs": "finished",
    "transcript": "at",
    "questions": "asked",
    "conversations": "used",
    "usage": "at",
    "calls": "at",
}
PARTS = ("SAVEPOINT ", "RELEASE ", "ROLLBACK TO ")  # a part of a transaction begins and ends
AT_WORK = "SELECT 1 FROM jobs WHERE owner IS NOT NULL"
NEW_WORDS = count(100)
ASKS = {"calls": [{"name": "ask_clarification", "args": {"question": "Which one?", "options": ["a", "b"]}}]}


class Traced(Service):
    """The service; its statements are in `statements`."""

    async def spawn(self, *arguments: str) -> asyncio.subprocess.Process:
        with (self.folder / "log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *[sys.executable, "-m", "tests.support.traced_service", "statements", *arguments],
                cwd=self.folder, env=self.environment(), stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        return self.process

    def sent(self) -> list[str]:
        """Return the statements so far."""
        return (self.folder / "statements").read_text().split("\0")[:-1]

    def has_swept(self) -> bool:
        """Return whether retention, which a start begins with, has come to the conversations, its last rows."""
        return any(each.startswith("SELECT key FROM conversations WHERE used<") for each in self.sent())

    async def statements(self) -> set[str]:
        """Shut it down and return its statements."""
        assert await self.stop() == 0
        return {*self.sent()} - {DURABLE, LAZY}


class _Anything(dict[str, Any]):
    """A value for every parameter."""

    def __missing__(self, name: str) -> None:
        return None


def scans(database: Path, statement: str) -> list[str]:
    """Return the steps of SQLite's plan that read a whole table, or a whole index with an entry per row."""
    connection = sqlite3.connect(database)
    try:
        rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", _Anything()).fetchall()
        names = "SELECT name FROM sqlite_master WHERE type='index' AND sql LIKE '% WHERE %'"
        partial = {str(name) for (name,) in connection.execute(names)}
    finally:
        connection.close()
    found = [
        re.match(
            r"SCAN (?!\d+ CONSTANT ROWS|\d+-ROW VALUES)(\w+)(?: USING (?:COVERING )?INDEX (\w+))?( VIRTUAL)?",
            str(row[3]),
        )
        for row in rows
    ]
    return [
        each[0]
        for each in found
        if each and each[1] not in SMALL | {"CONSTANT"} and each[2] not in partial and not each[3]
    ]


async def converse(service: Service, telegram: FakeTelegram) -> None:
    """Do what people and an operator do in a day."""

    async def say(text: str, answer: str, **more: Any) -> None:
        telegram.send(text, **more)
        await telegram.wait(JANE, answer)

    await say(ask(steps=[WRITES], text="written"), "written")
    await service.quiet()
    for command, answer in (
        ("/help", "Tell me what you need"),
        ("/status", "All is well"),
        ("/notify on", "I ping"),
        ("/search written", "Found"),
        ("/new", "A fresh start"),
    ):
        await say(command, answer)
    telegram.send_document("a.csv", b"1", caption=ask(text="got a.csv"))
    await telegram.wait(JANE, "got a.csv")
    await service.quiet()
    await say(ask(steps=[ASKS], text="chosen"), "Which one?")
    await service.quiet()
    await say("b", "chosen")
    await service.quiet()
    await say("/retry", "Trying again")
    await service.quiet()
    await say("b", "chosen")
    await service.quiet()
    telegram.send(ask(tokens=1000, tok_ms=50, word="long"))
    await telegram.wait(JANE, "long1")
    await say("also this", "got it")
    await say("/stop", "Stopped")
    telegram.send_sticker()
    await telegram.wait(JANE, "I can't read")
    await service.quiet()
    assert (await service.fawn("status"))[0] == 0
    assert (await service.fawn("dead", "list"))[0] == 0
    assert (await service.fawn("pair", "list"))[0] == 0
    assert (await service.fawn("export", "telegram/"))[0] == 0


def age(database: Path) -> None:
    """Make everything older than the retention time."""
    connection = sqlite3.connect(database)
    for table, time in AGES.items():
        connection.execute(f"UPDATE {table} SET {time}=0")  # noqa: S608 — constants
    connection.commit()
    connection.close()


async def test_every_statement_finds_its_rows_by_an_index(
    tmp_path: Path, telegram: FakeTelegram, model: FakeModel
) -> None:
    service = Traced(tmp_path, telegram, model, SETTINGS)
    try:
        await service.start()
        await converse(service, telegram)
        seen = await service.statements()
        age(service.data / "fawn.db")
        await service.start()
        await until(lambda: not service.rows("SELECT 1 FROM conversations"), 60, "a store without old rows")
        seen |= await service.statements()
    finally:
        await service.kill()
    assert {
        "inbox",
        "outbox",
        "runs",
        "jobs",
        "usage",
        "conversations",
        "questions",
        "ledger",
        "posts",
        "checkpoints",
    } <= {word for statement in seen for word in re.findall(r"\w+", statement)}
    assert len(seen) > 50
    plans = {
        statement: scans(service.data / "fawn.db", statement)
        for statement in seen
        if not statement.startswith(("CREATE", *PARTS))
    }
    assert not {statement: steps for statement, steps in plans.items() if steps}


def test_a_table_scan_is_detected(tmp_path: Path) -> None:
    """Check the measurement itself."""
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.executescript("CREATE TABLE t(a, b); CREATE INDEX t_b ON t(b); CREATE INDEX t_open ON t(b) WHERE a=0")
    connection.close()
    plans = {
        "SELECT * FROM t WHERE a=:a": ["SCAN t"],
        "SELECT x.b FROM t AS x ORDER BY b": ["SCAN x USING COVERING INDEX t_b"],
        "SELECT b FROM t WHERE a=0": [],
        "SELECT a FROM t WHERE b=:b": [],
    }
    assert {statement: scans(tmp_path / "a.db", statement) for statement in plans} == plans


@dataclass(frozen=True, slots=True)
class DatabaseWork:
    """What something cost in the databases."""

    transactions: int
    durable: int  # those that wait for the disk
    statements: int  # without those that begin and end a transaction or a part of one


def database_work(statements: Sequence[str], before: int) -> DatabaseWork:
    """Return the work of the statements after the first `before`."""
    done = [each for each in statements[before:] if not each.startswith(PARTS)]
    ends = [each for each in done if each in (DURABLE, LAZY)]
    return DatabaseWork(len(ends), ends.count(DURABLE), len(done) - len(ends))


async def cheapest_turn(service: Traced, telegram: FakeTelegram, name: str, **turn: Any) -> DatabaseWork:
    """Return what such a turn costs, with words that the person had not written before.

    Beside one of several, a part may look by itself for what it missed.
    """
    found = []
    for number in islice(NEW_WORDS, 6):
        before = len(service.sent())
        telegram.send(ask(text=f"{name} {number}", **turn))
        await telegram.wait(JANE, f"{name} {number}")
        await service.quiet()
        found.append(database_work(service.sent(), before))
    return min(found, key=astuple)


async def test_what_a_turn_costs_in_the_database(tmp_path: Path, telegram: FakeTelegram, model: FakeModel) -> None:
    """A change that needs more or less says so here. Under load, transactions share their commits."""
    service = Traced(tmp_path, telegram, model, {"sandbox": {"provider": "none"}})
    await service.start()
    try:
        for number in range(2):
            telegram.send(ask(text=f"warm {number}"))
            await telegram.wait(JANE, f"warm {number}")
            await service.quiet()
        await until(lambda: service.has_swept() and not service.rows(AT_WORK), what="the end of the first retention")
        plain = await cheapest_turn(service, telegram, "words that come one after the other", tok_ms=50)
        once = await cheapest_turn(service, telegram, "noted", steps=[NOTES])
        twice = await cheapest_turn(service, telegram, "twice", steps=[NOTES, NOTES])
        five = await cheapest_turn(service, telegram, "five", steps=FIVE_NOTES)
    finally:
        await service.kill()
    more = DatabaseWork(*map(operator.sub, astuple(twice), astuple(once)))
    assert more == DatabaseWork(transactions=3, durable=1, statements=15)
    assert five.durable <= 9, "a result joins the commit that begins the next call"
    # the id of the message that streamed joins the commit that ends the turn
    assert plain == DatabaseWork(transactions=5, durable=3, statements=55)
