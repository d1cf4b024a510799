"""An SQLite file with rows in every table, facts that a search finds, and an audit."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from agent.memory.extraction import Fact, Statement
from agent.memory.visibility import MemoryKind, MemoryScope
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Database, Execute
from bot.database.migrate import create_schema
from bot.memory.facts import NewFact, store_fact
from bot.storage.memory_search import search_memories
from tests.unit.agent.test_memory import JANE, PLACES

DIRECT = PLACES["Jane's direct chat"]
FACTS = ("Jane prefers the naïve café on Fridays", "Jane's machine is called 龙门吊", "Jane deploys with make release")
LEFT = ("alembic_version", "memory_index", "audit", "audit_names", "audit_anchors", "memory", "usage")
VALUES: dict[str, Any] = {"INTEGER": 2**40, "FLOAT": 1.5, "TEXT": "té\\xt ☃ ' ", "BLOB": b"\x00\\x41\xff"}


async def fill(file: Path, rows: int = 3) -> None:
    """Make a file with so many rows in each table, of which the last one's number is gone again."""
    create_schema(file)
    async with Database(file) as store:
        await store.run(partial(_learn, facts=FACTS))
        for number in range(rows):
            event = AuditEvent(AuditKind.COMMAND, who="7", channel="telegram", what={"name": f"/c{number}"})
            await store.run(partial(audit.record, event=event))
        await store.run(partial(_fill_tables, rows=rows))


def _learn(execute: Execute, facts: tuple[str, ...]) -> None:
    for text in facts:
        fact = Fact(text, "", MemoryKind.PREFERENCE, 0, 0.6, MemoryScope.PERSON, ())
        store_fact(execute, DIRECT, JANE, NewFact(fact, Statement(text, f"k{text}", 0.0), 0.6))


def _fill_tables(execute: Execute, rows: int) -> None:
    tables = execute("SELECT name FROM sqlite_schema WHERE type='table' AND sql NOT LIKE '%VIRTUAL%'", {})
    for name in [row["name"] for row in tables]:
        if name.startswith(("memory_index", "sqlite")) or name in LEFT:
            continue
        columns = execute("SELECT name, type, pk FROM pragma_table_info(:name)", {"name": name})
        names = ", ".join(f'"{column["name"]}"' for column in columns)
        for number in range(1, rows + 1):
            values = {f"v{place}": _value(column, number, place) for place, column in enumerate(columns)}
            places = ", ".join(f":{key}" for key in values)
            execute(f"INSERT INTO {name}({names}) VALUES ({places})", values)  # noqa: S608 — names of the schema
    for statement in ("DELETE FROM inbox WHERE id=:id", "DELETE FROM outbox WHERE id=:id"):
        execute(statement, {"id": rows})  # its number is used
    execute("UPDATE inbox SET payload='' WHERE id=1", {})  # as whose words are forgotten


def _value(column: Any, number: int, place: int) -> Any:
    if column["type"] in ("INTEGER", "BIGINT"):
        return number if column["pk"] else VALUES["INTEGER"] + number
    value, mark = VALUES[column["type"]], f"{number}.{place}"
    if isinstance(value, bytes):
        return value + mark.encode()
    return value + (mark if isinstance(value, str) else number)


def dump(file: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of all tables, without the pages of the index, in the order of their numbers."""
    found = {}
    with closing(sqlite3.connect(file)) as connection:
        connection.text_factory = bytes
        sql = "SELECT name FROM sqlite_schema WHERE type='table' AND name NOT LIKE 'memory\\_index\\_%' ESCAPE '\\'"
        for (name,) in connection.execute(sql).fetchall():
            rows = connection.execute(f"SELECT * FROM {name.decode()}").fetchall()  # noqa: S608 — of the schema
            found[name.decode()] = sorted(rows, key=repr)
    return found


async def facts_found(store: Database, text: str) -> list[str]:
    """Return the facts that a search finds."""
    memories = await store.run(lambda execute: search_memories(execute, DIRECT, JANE, text))
    return [memory.text for memory in memories]
