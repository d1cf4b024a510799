"""Read which turns other processes work on, as far as rows tell."""

from __future__ import annotations

from dataclasses import dataclass

from agent.blocks import StepState
from bot.database.database import Execute
from bot.database.dialect import NOW
from bot.database.rows import read_rows
from bot.database.states import RunState
from bot.storage.usage import IS_CALL

MOST_ELSEWHERE = 500  # that are read
_STEPS_OF = "FROM run_steps s WHERE s.conversation=c.key"
_RUNNING_STEP: StepState = "running"
_DOING = (
    f"(SELECT coalesce(nullif(s.step_title, ''), s.text) {_STEPS_OF} AND s.state='{_RUNNING_STEP}'"
    " ORDER BY s.at DESC, s.item DESC LIMIT 1)"
)
_TURNS = f"""
SELECT r.id AS run, c.thread, c.title, c.agent, r.requester, r.attempt, r.started, p.host, p.id AS replica,
 coalesce({_DOING}, '') AS doing, (SELECT count(*) {_STEPS_OF}) AS steps,
 (SELECT count(*) FROM usage u WHERE u.run=r.id AND {IS_CALL}) AS calls,
 (SELECT coalesce(sum(u.input+u.output), 0) FROM usage u WHERE u.run=r.id) AS tokens
FROM conversations c JOIN runs r ON r.conversation=c.key AND r.state='{RunState.RUNNING}'
 JOIN replicas p ON p.id=c.owner
WHERE c.owner IS NOT NULL AND c.owner<>:owner AND p.until>={NOW} ORDER BY r.started, r.id LIMIT :most"""


@dataclass(frozen=True, slots=True)
class TurnElsewhere:
    """A turn of the process `replica`, which works on the files of `host`. Its use is what has been stored so far."""

    run: int
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
