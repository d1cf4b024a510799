"""The audit: rows a second appended and verified, and what the rows of a turn cost.

`python -m bench.audit --rows 1000000 --folder DISK`. The appends share transactions of 1,000 rows. The second figure is
the processor's time, which other programs on the machine do not change.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path

from agent.messages import Thread
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.audit_check import PruningRules, verify_chain
from bot.database.database import Execute
from bot.database.migrate import migrate_database

BATCH_ROWS, TURNS = 1000, 300
CALLS_OF_A_TURN = 4


def sample(number: int) -> AuditEvent:
    """Return a tool call of one of 50 people in one of 200 threads."""
    thread = Thread("slack", "T1", f"C{number % 20}", f"170000{number % 200}")
    what = {"tool": "bash", "arguments": audit.digest(str(number))}
    return AuditEvent(AuditKind.TOOL_CALL, thread, f"U{number % 50}", run=number // 7, what=what, result="allowed")


def turn(execute: Execute, number: int) -> None:
    """Record what one turn with some tool calls records."""
    event = sample(number)
    for _ in range(CALLS_OF_A_TURN):
        audit.record(execute, event)
        audit.record(execute, AuditEvent(AuditKind.TOOL_RESULT, event.thread, event.who, run=1, result="success"))
    for kind in (AuditKind.MESSAGE, AuditKind.TURN_ENDED, AuditKind.DELIVERY):
        audit.record(execute, AuditEvent(kind, event.thread, event.who, run=1, result="sent"))


def measure(folder: Path, rows: int) -> None:
    """Print the figures."""
    path = folder / "fawn.db"
    migrate_database(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")

        def execute(sql: str, values: object = ()) -> list[sqlite3.Row]:
            return connection.execute(sql, values).fetchall()  # type: ignore[arg-type]  # a mapping

        began, used = time.perf_counter(), time.process_time()
        for start in range(0, rows, BATCH_ROWS):
            execute("BEGIN IMMEDIATE")
            for number in range(start, min(rows, start + BATCH_ROWS)):
                audit.record(execute, sample(number))
            execute("COMMIT")
        seconds, used = time.perf_counter() - began, time.process_time() - used
        print(f"append   {rows / seconds:10,.0f} rows/s, {used / rows * 1e6:.0f} us processor a row")
        turns = []
        for number in range(TURNS):
            execute("BEGIN IMMEDIATE")
            began = time.perf_counter()
            turn(execute, number)
            turns.append(time.perf_counter() - began)
            execute("ROLLBACK")
        print(f"turn     {statistics.median(turns) * 1000:10.2f} ms for {2 * CALLS_OF_A_TURN + 3} rows  (goal: 2 ms)")
        began, used = time.perf_counter(), time.process_time()
        report = verify_chain(execute, {}, PruningRules(1))
        seconds, used = time.perf_counter() - began, time.process_time() - used
        assert (report.rows, report.fault) == (rows, "")
        print(f"verify   {seconds:10.1f} s, {used:.1f} s processor, for {rows:,} rows  (goal: 30 s for 1,000,000)")
        print(f"size     {path.stat().st_size / rows:10.0f} bytes a row")
        began, deleted = time.perf_counter(), 0
        while deleted < rows // 2:
            execute("BEGIN IMMEDIATE")
            deleted += audit.prune_rows(execute, 0, 2000)
            execute("COMMIT")
        print(f"prune    {time.perf_counter() - began:10.1f} s for {deleted:,} rows")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.audit", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--folder", help="where the database is written; default: the temporary folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as scratch:
        measure(Path(scratch), given.rows)
