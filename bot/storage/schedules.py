"""Schedules: what runs at set times, for whom and where, and what each fire led to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.messages import Author, Requester, Thread
from agent.schedules import Timing
from bot.database.database import Execute
from bot.database.dialect import SKIP_LOCKED
from bot.database.rows import insert_row, read_row, read_rows
from bot.database.states import FireResult, ScheduleState
from bot.storage.runs import LATEST_RUN

MAX_LISTED = 50

# While work of the last fire is pending or runs, the next fire waits. The conversation belongs to the schedule alone.
_CONVERSATION = "'schedule:' || s.id || CASE s.moves WHEN 0 THEN '' ELSE '.' || s.moves END"
_BUSY = (
    f"EXISTS (SELECT 1 FROM conversations c WHERE c.key={_CONVERSATION} AND (c.pending>0 OR c.owner IS NOT NULL))"
    " OR EXISTS (SELECT 1 FROM jobs j WHERE j.key='watch:' || s.id AND j.due IS NOT NULL)"
)
_DUE = f"FROM schedules s WHERE s.state='{ScheduleState.ACTIVE}' AND s.next_at<=:now AND NOT ({_BUSY})"
_KEPT = f"state IN ('{ScheduleState.PROPOSED}', '{ScheduleState.ACTIVE}', '{ScheduleState.PAUSED}')"


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A schedule. `changes` is the schedule that this proposal would change, 0 for a new one.

    `next_at` is in unix time. `since` is when it was confirmed, from which `every` counts. `seen` is the text of the
    watched page at its last check, and `failures` counts the checks since then that could not read it. `moves` counts
    how often it moved to another address.
    """

    id: int
    channel: str
    owner: str
    name: str
    language: str
    guest: int
    private: int
    thread: str
    kind: str
    what: str
    url: str
    form: str
    expression: str
    zone: str
    since: float
    missed: str
    state: str
    next_at: float | None
    changes: int
    created: float
    seen: str
    failures: int
    moves: int

    @property
    def timing(self) -> Timing:
        """When it fires."""
        return Timing(self.form, self.expression, self.zone, self.since)

    @property
    def place(self) -> Thread:
        """Where it posts. Raises ValueError where the address is damaged."""
        return Thread.parse(self.thread)

    @property
    def who(self) -> Requester:
        """Its owner, and where it posts. Raises ValueError where the address is damaged."""
        author = Author(self.owner, self.name, guest=bool(self.guest), language=self.language)
        return Requester(author, self.place, bool(self.private))

    @property
    def conversation(self) -> str:
        """The key of its own conversation, which all its runs at one address share: who reads there read its past."""
        return f"schedule:{self.id}.{self.moves}" if self.moves else f"schedule:{self.id}"

    @property
    def watch_job(self) -> str:
        """The key of the job that looks at its page."""
        return f"watch:{self.id}"


@dataclass(frozen=True, slots=True)
class FireRow:
    """A fire: when it was `due` and when it was done, with the latest run of its work and that run's state."""

    due: float
    at: float
    result: str
    run: int | None
    state: str | None


def add_schedule(execute: Execute, values: Mapping[str, Any]) -> int:
    """Store a schedule and return its number."""
    [row] = insert_row(execute, "schedules", "id", values)
    return int(row["id"])


def find_schedule(execute: Execute, number: int) -> ScheduleRow | None:
    """Return a schedule."""
    return read_row(execute, ScheduleRow, "SELECT * FROM schedules WHERE id=:id", id=number)


def count_schedules(execute: Execute, channel: str, owner: str) -> int:
    """Count the schedules of a person that have not ended."""
    sql = f"SELECT count(*) AS n FROM schedules WHERE channel=:channel AND owner=:owner AND {_KEPT} AND changes=0"
    return int(execute(sql, {"channel": channel, "owner": owner})[0]["n"])


def list_owned(
    execute: Execute, channel: str, owner: str, after: int = 0, limit: int = MAX_LISTED
) -> list[ScheduleRow]:
    """Return the schedules of a person that have not ended, behind this number."""
    sql = (
        f"SELECT * FROM schedules WHERE channel=:channel AND owner=:owner AND id>:after AND {_KEPT} AND changes=0"
        " ORDER BY id LIMIT :limit"
    )
    return read_rows(execute, ScheduleRow, sql, channel=channel, owner=owner, after=after, limit=limit)


def list_everybodys(execute: Execute, after: int, limit: int) -> list[ScheduleRow]:
    """Return schedules of everybody that have not ended, behind this number."""
    sql = f"SELECT * FROM schedules WHERE id>:after AND {_KEPT} AND changes=0 ORDER BY id LIMIT :limit"
    return read_rows(execute, ScheduleRow, sql, after=after, limit=limit)


def list_unended(execute: Execute, channel: str, owner: str) -> list[ScheduleRow]:
    """Return all schedules of a person that have not ended, and proposed changes."""
    sql = f"SELECT * FROM schedules WHERE channel=:channel AND owner=:owner AND {_KEPT} ORDER BY id"
    return read_rows(execute, ScheduleRow, sql, channel=channel, owner=owner)


def offer_to(execute: Execute, number: int, owner: str, name: str, now: float) -> None:
    """Make another person of the channel the owner of a schedule, which waits for their yes."""
    execute(
        "UPDATE schedules SET owner=:owner, name=:name, language='', guest=0, state=:state, next_at=NULL, created=:now"
        " WHERE id=:id",
        {"id": number, "owner": owner, "name": name, "state": ScheduleState.PROPOSED, "now": now},
    )


def list_posting(execute: Execute, chat: Thread) -> list[ScheduleRow]:
    """Return the schedules that post in a chat, in any of its topics, and have not ended."""
    beginning = str(Thread(chat.channel, chat.workspace, chat.chat))
    sql = (
        f"SELECT * FROM schedules WHERE thread>=:beginning AND thread<=:beginning || '~' AND {_KEPT} AND changes=0"
        f" ORDER BY id LIMIT {MAX_LISTED}"
    )
    return read_rows(execute, ScheduleRow, sql, beginning=beginning)


def due_schedules(execute: Execute, now: float, limit: int) -> list[ScheduleRow]:
    """Return active schedules whose time has come and whose last fire has ended, without those another one fires."""
    sql = f"SELECT s.* {_DUE} ORDER BY s.next_at LIMIT :limit{SKIP_LOCKED}"
    return read_rows(execute, ScheduleRow, sql, now=now, limit=limit)


def schedules_after(execute: Execute, then: float, *, everything: bool) -> list[ScheduleRow]:
    """Return active schedules that were confirmed or have fired after a time, or all.

    If the time is in the future, the clock was set back.
    """
    sql = (
        f"SELECT * FROM schedules WHERE state='{ScheduleState.ACTIVE}' AND (:everything=1 OR since>:then"
        " OR id IN (SELECT schedule FROM schedule_fires WHERE at>:then))"
    )
    return read_rows(execute, ScheduleRow, sql, then=then, everything=int(everything))


def earliest_fire(execute: Execute, now: float) -> float | None:
    """Return when the next active schedule is due. One whose last fire still works does not count once it is due."""
    rows = execute(f"SELECT s.next_at {_DUE} ORDER BY s.next_at LIMIT 1", {"now": now}) or execute(
        f"SELECT min(next_at) AS next_at FROM schedules WHERE state='{ScheduleState.ACTIVE}' AND next_at>:now",
        {"now": now},
    )
    due: float | None = rows[0]["next_at"]
    return due


def is_busy(execute: Execute, row: ScheduleRow) -> bool:
    """Return whether work of the last fire is pending or runs."""
    return bool(execute(f"SELECT 1 FROM schedules s WHERE s.id=:id AND ({_BUSY})", {"id": row.id}))


def move_next(execute: Execute, row: ScheduleRow, next_at: float | None) -> None:
    """Store the next time of a schedule; without one it has ended."""
    sql = "UPDATE schedules SET next_at=:next_at, state=:state WHERE id=:id"
    state = ScheduleState.ENDED if next_at is None else ScheduleState.ACTIVE
    execute(sql, {"id": row.id, "next_at": next_at, "state": state})


def set_schedule_state(execute: Execute, number: int, state: ScheduleState, next_at: float | None = None) -> None:
    """Set the state, and the next time of an active schedule."""
    sql = "UPDATE schedules SET state=:state, next_at=:next_at, failures=0 WHERE id=:id"
    execute(sql, {"id": number, "state": state, "next_at": next_at})


def apply_change(execute: Execute, change: ScheduleRow) -> None:
    """Copy a confirmed change to its schedule, and delete the proposal. What was seen of another page is forgotten."""
    execute(
        "UPDATE schedules SET kind=n.kind, what=n.what, url=n.url, form=n.form, expression=n.expression, zone=n.zone,"
        " since=n.since, missed=n.missed, seen=CASE WHEN schedules.url=n.url THEN schedules.seen ELSE '' END"
        " FROM (SELECT * FROM schedules WHERE id=:change) AS n WHERE schedules.id=:id",
        {"change": change.id, "id": change.changes},
    )
    delete_schedule(execute, change.id)


def begin_counting(execute: Execute, number: int, now: float) -> None:
    """Let `every` count from now."""
    execute("UPDATE schedules SET since=:now WHERE id=:id", {"id": number, "now": now})


def own_conversations(execute: Execute, number: int) -> list[str]:
    """Return the conversations that a schedule has had."""
    sql = "SELECT key FROM conversations WHERE key=:key OR (key>:key || '.' AND key<:key || '/')"
    return [str(row["key"]) for row in execute(sql, {"key": f"schedule:{number}"})]


def move_place(execute: Execute, row: ScheduleRow, thread: Thread, *, private: bool) -> None:
    """Let a schedule post at another address, in a new conversation: others read there."""
    sql = (
        "UPDATE schedules SET moves=CASE WHEN thread=:thread THEN moves ELSE moves+1 END,"
        " thread=:thread, private=:private WHERE id=:id"
    )
    execute(sql, {"id": row.id, "thread": str(thread), "private": int(private)})


def delete_schedule(execute: Execute, number: int) -> None:
    """Delete a schedule and its history."""
    execute("DELETE FROM schedules WHERE id=:id", {"id": number})
    execute("DELETE FROM schedule_fires WHERE schedule=:id", {"id": number})


def worked_until(execute: Execute, number: int) -> float:
    """Return when the latest run of a schedule ended; 0.0 if none has."""
    sql = (
        "SELECT max(r.finished) AS at FROM schedule_fires f JOIN inbox i ON i.id=f.message JOIN runs r ON r.id=i.run"
        " WHERE f.schedule=:id"
    )
    return float(execute(sql, {"id": number})[0]["at"] or 0.0)


def record_seen(execute: Execute, number: int, text: str) -> None:
    """Store the text of the watched page."""
    execute("UPDATE schedules SET seen=:text, failures=0 WHERE id=:id", {"id": number, "text": text})


def count_failure(execute: Execute, number: int) -> int:
    """Count a check that could not read the page; return how many there were in a row."""
    rows = execute("UPDATE schedules SET failures=failures+1 WHERE id=:id RETURNING failures", {"id": number})
    return int(rows[0]["failures"]) if rows else 0


# ------------------------------------------------------------ fires


def record_fire(execute: Execute, number: int, due: float, now: float, result: FireResult) -> bool:
    """Record a fire; return whether it is the first one for this time."""
    values = {"schedule": number, "due": due, "at": now, "result": result}
    return bool(insert_row(execute, "schedule_fires", "schedule, due", values))


def set_fire_result(execute: Execute, number: int, due: float, result: FireResult, message: int | None = None) -> None:
    """Store what a fire led to; `message` is the inbox row of its run."""
    sql = "UPDATE schedule_fires SET result=:result, message=:message WHERE schedule=:id AND due=:due"
    execute(sql, {"id": number, "due": due, "result": result, "message": message})


def list_fires(execute: Execute, number: int, limit: int) -> list[FireRow]:
    """Return the latest fires of a schedule, newest first."""
    sql = (
        "SELECT f.due, f.at, f.result, r.id AS run, r.state FROM schedule_fires f LEFT JOIN inbox i ON i.id=f.message"
        f" LEFT JOIN runs r ON r.id={LATEST_RUN} WHERE f.schedule=:id ORDER BY f.due DESC LIMIT :limit"
    )
    return read_rows(execute, FireRow, sql, id=number, limit=limit)
