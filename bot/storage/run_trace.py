"""Read what the database knows of one run: messages, calls, steps, questions, deliveries, posts."""

from __future__ import annotations

from typing import Any

from bot.database.database import Execute

_PARTS = {  # name → statement
    "messages": "SELECT key, kind, received FROM inbox WHERE run=:run ORDER BY id",
    "calls": "SELECT agent, model, kind, input, output, cached, cost, seconds, open, began FROM usage WHERE run=:run"
    " ORDER BY began, id",
    "steps": "SELECT item, parent, kind, text, step_title, state, seconds, at FROM transcript"
    " WHERE conversation=:conversation AND run=:run AND author='' AND kind<>'file' ORDER BY at, id",
    "questions": "SELECT id, kind, state, asked, answered_at FROM questions WHERE conversation=:conversation"
    " AND run=:run ORDER BY asked",
    "deliveries": "SELECT o.id, o.kind, o.state, o.attempts, o.created, o.error FROM outbox o WHERE o.run=:run"
    " ORDER BY o.id",
    "posts": "SELECT part, message_id, sent, created FROM posts WHERE reply='r' || :run ORDER BY part",
}


def find_run_of(execute: Execute, what: str) -> int | None:
    """Return the run with this number, or that of the message with this key; None: there is none."""
    if what.isascii() and what.isdecimal() and len(what) < 19:
        rows = execute("SELECT id AS run FROM runs WHERE id=:run", {"run": int(what)})
    else:
        rows = execute("SELECT run FROM inbox WHERE key=:key AND run IS NOT NULL", {"key": what})
    return int(rows[0]["run"]) if rows else None


def run_numbers(execute: Execute, before: int, limit: int) -> list[int]:
    """Return the numbers of the latest runs before one, the newest first."""
    rows = execute(
        "SELECT id FROM runs WHERE id<:before ORDER BY id DESC LIMIT :limit", {"before": before, "limit": limit}
    )
    return [int(row["id"]) for row in rows]


def read_run_trace(execute: Execute, run: int) -> dict[str, Any] | None:
    """Return the run with its parts, each a list of rows by time; None where there is no such run."""
    rows = execute(
        "SELECT r.id AS run, r.conversation, r.requester, r.state, r.attempt, r.started, r.finished, c.thread"
        " FROM runs r JOIN conversations c ON c.key=r.conversation WHERE r.id=:run",
        {"run": run},
    )
    if not rows:
        return None
    found = dict(rows[0])
    of = {"run": run, "conversation": found["conversation"]}
    for name, sql in _PARTS.items():
        found[name] = [dict(row) for row in execute(sql, of)]
    return found
