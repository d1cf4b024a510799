"""Show an operator the turns of this moment, and the lines of the log."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bot.base.log import RECENT, LogLine
from bot.database.database import Database, Execute
from bot.database.replicas import host_of
from bot.database.states import RunState
from bot.journey.running_turn import RunningTurn
from bot.storage.operator_views import TurnElsewhere, find_run_of, read_run_trace, turns_elsewhere

MAX_LINES = 2000  # in one answer
MAX_TEXT_CHARS = 100
_AS_STORED = ("run", "thread", "requester", "attempt", "agent", "steps", "calls", "tokens", "host", "replica")
OPEN = (RunState.QUEUED, RunState.RUNNING)


@dataclass(frozen=True, slots=True)
class TurnsInProgress:
    """The turns at this process, which is `replica` on `host` ("" where it works alone), and those of the others."""

    host: str
    replica: str
    here: Sequence[RunningTurn]
    elsewhere: Sequence[TurnElsewhere]

    def __len__(self) -> int:
        return len(self.here) + len(self.elsewhere)


def turns_in_progress(execute: Execute, store: Database, here: Sequence[RunningTurn]) -> TurnsInProgress:
    """Return the turns at all processes that share the database. `here` are those of this one."""
    if not store.is_shared:
        return TurnsInProgress("", "", here, ())
    known = {turn.job.run for turn in here}
    others = [turn for turn in turns_elsewhere(execute, store.me) if turn.run not in known]
    return TurnsInProgress(host_of(execute, store.me), store.me, here, others)


def describe_turn(live: RunningTurn) -> dict[str, Any]:
    """Return a turn: whose it is, since when it works, what it does now, and what it has used."""
    steps = [step for step in live.feed.view.steps.values() if step.state == "running"]
    used = live.meter.total
    return {
        "run": live.job.run,
        "thread": str(live.job.thread),
        "requester": live.job.requester,
        "attempt": live.job.attempt,
        "agent": live.job.agent,
        "seconds": time.monotonic() - live.started,
        "doing": (steps[-1].title or steps[-1].detail)[:MAX_TEXT_CHARS] if steps else "",
        "steps": len(live.feed.view.steps),
        "calls": used.calls,
        "tokens": used.input + used.output,
    }


def describe_elsewhere(turn: TurnElsewhere) -> dict[str, Any]:
    """Return a turn of another process, in the same words, with its host: what that process has stored of it so far."""
    shown = {name: getattr(turn, name) for name in _AS_STORED}
    return shown | {"seconds": max(0.0, time.time() - turn.started), "doing": turn.doing[:MAX_TEXT_CHARS]}


async def recent_log(store: Database, what: str, after: int) -> dict[str, Any]:
    """Return the log lines behind the number `after` of a run (a number, or the key of a message), of the threads whose
    address begins with `what`, or of everything (""). `open`: the run has not ended."""
    found = await store.run(partial(_find, what=what), durable=False) if what else None
    lines, last = RECENT.after(after, _matcher(what, found), MAX_LINES)
    is_open = found is not None and found["state"] in OPEN
    return {"lines": [line.text for line in lines], "after": last, "open": is_open, "known": bool(found or not what)}


def _find(execute: Execute, what: str) -> dict[str, Any] | None:
    run = find_run_of(execute, what)
    return read_run_trace(execute, run) if run else None


def _matcher(what: str, run: dict[str, Any] | None) -> Callable[[LogLine], bool]:
    if run:
        number, keys = str(run["run"]), [f"key={message['key']}" for message in run["messages"]]
        return lambda line: line.run == number or any(key in line.text for key in keys)
    return lambda line: line.thread.startswith(what) or (bool(what) and f"thread={what}" in line.text)
