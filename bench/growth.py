"""Measure by how much a turn makes the database and the log grow, and what that is after months.

People's turns are generated: half of them an answer of 120 words, half three commands and then one. Each kind runs in
chats of its own against a fresh service. The table of docs/operations.md is these bytes times 15 turns a person and
working day: what `keep_days` keeps, and rows of the audit for `audit.days`.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bench.harness import Job, Row, World, new_chats, show

WORDS, TOOLS = 120, 3
TURNS_A_DAY, WORKING_DAYS = 15, 5 / 7
KEEP_DAYS, AUDIT_DAYS = 90, 365
AUDIT_ROW_BYTES = 32 + 40  # hash, and the row's and the page's own, beside its body
PEOPLE = (10, 100, 1000)


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes of a service: the database's pages in use, its audit, and the log."""

    database: int
    audit: int
    log: int

    @staticmethod
    def of(folder: Path) -> Size:
        """Measure the data folder of a running service. Blocks."""
        with closing(sqlite3.connect(f"file:{folder}/fawn.db?mode=ro", uri=True)) as store:
            [(pages,)] = store.execute("SELECT c.page_count * s.page_size FROM pragma_page_count c, pragma_page_size s")
            [(free,)] = store.execute(
                "SELECT f.freelist_count * s.page_size FROM pragma_freelist_count f, pragma_page_size s"
            )
            [(bodies, rows)] = store.execute("SELECT total(length(body)), count(*) FROM audit")
        log = (folder.parent / "output.txt").stat().st_size
        return Size(pages - free, int(bodies) + rows * AUDIT_ROW_BYTES, log)


async def measure(world: World, tools: int, turns: int) -> Size:
    """Return what one turn adds, over so many of them in a quarter as many chats."""
    async with world.service("fawn", more={"log": {"level": "info"}}) as service:
        chats = new_chats(turns // 4)
        for chat in chats:  # what a new chat has: its row, its title
            await world.turn(Job(chat, WORDS, tools=tools))
        await asyncio.sleep(2)
        before = await asyncio.to_thread(Size.of, service.data)
        for number in range(turns):
            await world.turn(Job(chats[number % len(chats)], WORDS, tools=tools))
        await asyncio.sleep(2)
        after = await asyncio.to_thread(Size.of, service.data)
    return Size(*((b - a) // turns for a, b in zip(_numbers(before), _numbers(after), strict=True)))


def _numbers(size: Size) -> tuple[int, int, int]:
    return size.database, size.audit, size.log


async def run(world: World, full: bool = False) -> list[Row]:
    """Measure both kinds of turns, and multiply."""
    turns = 200 if full else 40
    plain, busy = await measure(world, 0, turns), await measure(world, TOOLS, turns)
    database, audit, log = (sum(pair) / 2 for pair in zip(_numbers(plain), _numbers(busy), strict=True))
    rows = [
        Row("a turn with an answer of 120 words: database", plain.database / 1000, "KB", note=f"audit {plain.audit} B"),
        Row("the same: log at `info`", plain.log / 1000, "KB"),
        Row("a turn with three commands: database", busy.database / 1000, "KB", note=f"audit {busy.audit} B"),
        Row("the same: log at `info`", busy.log / 1000, "KB"),
    ]
    for people in PEOPLE:
        a_day = people * TURNS_A_DAY * WORKING_DAYS
        kept = a_day * (KEEP_DAYS * (database - audit) + AUDIT_DAYS * audit) / 1e6
        first = a_day * KEEP_DAYS * database / 1e6
        written = people * TURNS_A_DAY * log / 1e6
        note = f"{kept:,.0f} MB with {AUDIT_DAYS} days of audit; log {written:.1f} MB a working day"
        rows.append(Row(f"{people} people: database after {KEEP_DAYS} days", first, "MB", note=note))
    show("Growth", rows)
    return rows
