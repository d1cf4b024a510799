"""Measure a turn and a command with a million finished rows, against an empty store.

Both are measured in turns, a little at a time: whatever else the machine does then falls on both.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.harness import Job, Row, World, median, ms, new_chats, show
from bench.latency import FAST
from bot.database.migrate import migrate_database
from tests.fakes.telegram import TOKEN

ROWS = 1_000_000  # of a quarter each: messages, runs, replies, posts
CHATS = 1000
LOOK = 0.002  # seconds between two checks for the answer to a command

_AGE = """
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM numbers WHERE n<:turns)
INSERT INTO {} FROM numbers"""
_TABLES = (
    (
        "inbox(id, key, conversation, kind, author, payload, state, ready, received, run)"
        " SELECT n, :account||'old:'||n, 'telegram/old/'||(n%:chats)||'/#1', 'chat', 'telegram:'||(n%:chats),"
        " printf('%.*c', 300, 'x'), 1, :then+n, :then+n, n"
    ),
    (
        "runs(id, conversation, requester, state, attempt, started, finished)"
        " SELECT n, 'telegram/old/'||(n%:chats)||'/#1', n%:chats, 'done', 1, :then+n, :then+n"
    ),
    (
        "outbox(id, key, kind, thread, conversation, run, payload, state, created)"
        " SELECT n, 'run:'||n, 'reply', 'telegram/old/'||(n%:chats)||'/', 'telegram/old/'||(n%:chats)||'/#1', n,"
        " printf('%.*c', 300, 'x'), 2, :then+n"
    ),
    (
        "posts(reply, part, thread, conversation, message_id, sent, created)"
        " SELECT 'r'||n, 0, 'telegram/old/'||(n%:chats)||'/', 'telegram/old/'||(n%:chats)||'/#1', n, 1, :then+n"
    ),
    "conversations(key, thread, created, used) SELECT 'telegram/old/'||n||'/#1', 'telegram/old/'||n||'/', :then, :then",
)


def age(data: Path) -> None:
    """Create a data folder that was used for a long time."""
    data.mkdir()
    migrate_database(data / "fawn.db")
    connection = sqlite3.connect(data / "fawn.db")
    account, turns = f"telegram:{TOKEN.partition(':')[0]}:", ROWS // 4
    values = {"turns": turns, "chats": CHATS, "account": account, "then": time.time() - turns - 3600}
    for table in _TABLES:
        count = CHATS if table.startswith("conversations") else turns
        connection.execute(_AGE.format(table), {**values, "turns": count})
    connection.commit()
    connection.close()


class Spell(NamedTuple):
    """Figures of one service process, in milliseconds."""

    turns: list[float]
    commands: list[float]


async def spell(world: World, prepare: Callable[[Path], None] | None, count: int) -> Spell:
    """Run `count` turns and as many commands, each alone."""
    chats = new_chats(10)
    async with world.service("fawn", rates=FAST, prepare=prepare) as service:
        for chat in chats:  # warm up
            await world.turn(Job(chat))
        turns = [await world.turn(Job(chats[n % 10])) for n in range(count)]
        commands = [await command(world, chats[n % 10]) for n in range(count)]
        assert service.process.returncode is None
    return Spell(ms(turns, lambda turn: turn.overhead), commands)


async def command(world: World, chat: int) -> float:
    """Return the milliseconds from the delivery of a command to the call that answers it."""
    before = time.monotonic()
    await world.telegram("bulk", texts={str(chat): "/model"})
    while True:
        calls = await world.telegram("calls_of", chat=chat, since=before)
        if shown := [call["done"] for call in calls if "is answered by" in call["args"].get("text", "")]:
            deliveries = await world.telegram("deliveries", chat=chat)
            return float(shown[0] - deliveries[-1]["at"][0]) * 1000
        await asyncio.sleep(LOOK)


async def run(world: World, full: bool = False) -> list[Row]:
    """Run the part; the goal is at most 10 % above an empty store."""
    rounds, count = (6, 50) if full else (3, 30)
    empty, old = [], []
    for _ in range(rounds):
        empty.append(await spell(world, None, count))
        old.append(await spell(world, age, count))
    rows = []
    for name, of in (("turn beyond the model", 0), ("command", 1)):
        bare = median([value for each in empty for value in each[of]])
        aged = median([value for each in old for value in each[of]])
        rows.append(
            Row(f"a {name}, {ROWS:,} old rows", aged, floor=bare, goal=bare * 1.1, note="floor: an empty store")
        )
    show("An old store", rows)
    return rows
