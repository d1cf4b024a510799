"""Usage: one row for each model call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from agent.blocks import Usage
from agent.context import ModelCall
from bot.storage.database import Execute
from bot.storage.rows import insert_row, read_row


def record_calls(execute: Execute, run: int, conversation: str, calls: Sequence[ModelCall]) -> None:
    """Record model calls of a run."""
    for call in calls:
        insert_row(execute, "usage", "id", {"run": run, "conversation": conversation, **asdict(call)})


def usage_of_run(execute: Execute, run: int) -> Usage:
    """Return the sum of the recorded calls of a run, over all its attempts."""
    sql = (
        "SELECT sum(input) AS input, sum(output) AS output, sum(cached) AS cached, sum(reasoning) AS reasoning,"
        " count(*) AS calls FROM usage WHERE run=:run GROUP BY run"
    )
    return read_row(execute, Usage, sql, run=run) or Usage()
