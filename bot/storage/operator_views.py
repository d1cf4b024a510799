"""Read for operators what one run did, and which turns other processes work on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent.blocks import StepState
from bot.database.database import Execute
from bot.database.dialect import NOW
from bot.database.rows import read_rows
from bot.database.states import RunState
from bot.storage.usage import IS_CALL

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


MOST_ELSEWHERE = 500  # that are read
_STEPS_OF = "FROM run_steps s WHERE s.conversation=c.key"
_RUNNING_STEP: StepState = "running"
_DOING = (
    f"(SELECT coalesce(nullif(s.step_title, ''), s.text) {_STEPS_OF} AND s.state='{_RUNNING_STEP}'"
    " ORDER BY s.at DESC, s.item DESC LIMIT 1)"
)
_TURNS = f"""
SELECT r.id AS run, c.key AS conversation, c.thread, c.title, c.agent, r.requester, r.attempt, r.started,
 p.host, p.id AS replica, coalesce({_DOING}, '') AS doing, (SELECT count(*) {_STEPS_OF}) AS steps,
 (SELECT count(*) FROM usage u WHERE u.run=r.id AND {IS_CALL}) AS calls,
 (SELECT coalesce(sum(u.input+u.output), 0) FROM usage u WHERE u.run=r.id) AS tokens
FROM conversations c JOIN runs r ON r.conversation=c.key AND r.state='{RunState.RUNNING}'
 JOIN replicas p ON p.id=c.owner
WHERE c.owner IS NOT NULL AND c.owner<>:owner AND p.until>={NOW} ORDER BY r.started, r.id LIMIT :most"""


@dataclass(frozen=True, slots=True)
class TurnElsewhere:
    """A turn of the process `replica`, which works on the files of `host`. Its use is what has been stored so far."""

    run: int
    conversation: str
    thread: str
    title: str
    agent: str
    requester: str
    attempt: int
    started: float
    host: str
    replica: str
    doing: str
    steps: int
    calls: int
    tokens: int


def turns_elsewhere(execute: Execute, owner: str) -> list[TurnElsewhere]:
    """Return the turns of the living processes but `owner`, the longest first, and not more than MOST_ELSEWHERE."""
    return read_rows(execute, TurnElsewhere, _TURNS, owner=owner, most=MOST_ELSEWHERE)
