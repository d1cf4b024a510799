"""Background tasks: what outlives a turn or runs without one, for whom and where, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.messages import Author, Requester, Thread
from bot.database.database import Execute
from bot.database.replicas import DEAD_OR_NO_OWNER
from bot.database.rows import MAX_ROW, insert_row, read_row, read_rows
from bot.database.states import OPEN_RUN, OPEN_TASK, InboxState, RunState, TaskKind, TaskState
from bot.storage.runs import LATEST_RUN

MAX_LISTED = 20

# The state of a task with runs is that of the latest one; before the first begins, its message waits.
_JOINS = f"tasks t LEFT JOIN inbox i ON i.id=t.message LEFT JOIN runs r ON r.id={LATEST_RUN}"
_ROWS = (
    f"SELECT t.*, r.id AS run, CASE t.state WHEN '{TaskState.RUN}' THEN coalesce(r.state, CASE i.state"
    f" WHEN {InboxState.WITHDRAWN} THEN '{TaskState.CANCELLED}' ELSE '{RunState.QUEUED}' END)"
    f" ELSE t.state END AS shown, coalesce(t.ended, r.finished) AS until FROM {_JOINS}"
)
_WITHDRAWN = f"state='{TaskState.RUN}' AND message IN (SELECT id FROM inbox WHERE state={InboxState.WITHDRAWN})"
_UNENDED = f"(r.{OPEN_RUN} OR r.state='{RunState.WAITING}' OR r.id IS NULL AND i.state<>{InboxState.WITHDRAWN})"
_OPEN = f"(t.{OPEN_TASK} OR t.state='{TaskState.RUN}' AND {_UNENDED})"


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A background task. `what` is its command or request, and `follow_up` the request to the agent for its end.

    `shown` is the state as people see it, and `until` its end, both also for a task with a `run`, its latest one.
    `message` is the row of the inbox that its first run answers, `begun_in` the run that started it, and `tool` the
    tool that started a command. Times are in unix time.
    """

    id: int
    key: str
    kind: str
    state: str
    channel: str
    person: str
    name: str
    language: str
    guest: int
    private: int
    thread: str
    conversation: str
    title: str
    what: str
    follow_up: str
    created: float
    started: float | None
    ended: float | None
    exit_code: int | None
    reason: str
    message: int | None
    begun_in: int | None
    tool: str
    run: int | None = None
    shown: str = ""
    until: float | None = None

    @property
    def place(self) -> Thread:
        """Where it reports. Raises ValueError where the address is damaged."""
        return Thread.parse(self.thread)

    @property
    def who(self) -> Requester:
        """For whom it works. Raises ValueError where the address is damaged."""
        author = Author(self.person, self.name, guest=bool(self.guest), language=self.language)
        return Requester(author, self.place, bool(self.private))

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for an answer."""
        return self.shown == RunState.WAITING

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.is_waiting or self.shown in (TaskState.QUEUED, TaskState.RUNNING)


def add_task(execute: Execute, values: Mapping[str, Any]) -> int:
    """Store a task and return its number. One with the same key is not stored again."""
    rows = insert_row(execute, "tasks", "key", values)
    rows = rows or execute("SELECT id FROM tasks WHERE key=:key", {"key": values["key"]})
    return int(rows[0]["id"])


def find_task(execute: Execute, number: int) -> TaskRow | None:
    """Return a task."""
    return read_row(execute, TaskRow, f"{_ROWS} WHERE t.id=:id", id=number)


def find_started(execute: Execute, key: str) -> TaskRow | None:
    """Return the task with this key."""
    return read_row(execute, TaskRow, f"{_ROWS} WHERE t.key=:key", key=key)


def list_of_person(
    execute: Execute, channel: str, person: str, before: int = MAX_ROW, limit: int = MAX_LISTED
) -> list[TaskRow]:
    """Return the latest tasks of a person before this number, the newest first."""
    sql = f"{_ROWS} WHERE t.channel=:channel AND t.person=:person AND t.id<:before ORDER BY t.id DESC LIMIT :limit"
    return read_rows(execute, TaskRow, sql, channel=channel, person=person, before=before, limit=limit)


def list_of_chat(execute: Execute, chat: Thread) -> list[TaskRow]:
    """Return the latest tasks that report in a chat, in any of its topics, the newest first."""
    beginning = str(Thread(chat.channel, chat.workspace, chat.chat))
    sql = f"{_ROWS} WHERE t.thread>=:beginning AND t.thread<=:beginning || '~' ORDER BY t.id DESC LIMIT {MAX_LISTED}"
    return [row for row in read_rows(execute, TaskRow, sql, beginning=beginning) if row.place.chat == chat.chat]


def list_of_channel(execute: Execute, channel: str) -> list[TaskRow]:
    """Return the latest tasks of everybody on a channel, the newest first."""
    sql = f"{_ROWS} WHERE t.channel=:channel ORDER BY t.id DESC LIMIT {MAX_LISTED}"
    return read_rows(execute, TaskRow, sql, channel=channel)


def list_everybodys(execute: Execute, before: int, limit: int) -> list[TaskRow]:
    """Return tasks of everybody, the newest first, before this number."""
    return read_rows(
        execute, TaskRow, f"{_ROWS} WHERE t.id<:before ORDER BY t.id DESC LIMIT :limit", before=before, limit=limit
    )


def count_open(execute: Execute, thread: Thread, person: str) -> tuple[int, int]:
    """Return how many tasks that were not scheduled have not ended: in a thread, and of a person on its channel."""
    sql = (
        "SELECT count(CASE WHEN t.thread=:thread THEN 1 END) AS here,"
        " count(CASE WHEN t.person=:person THEN 1 END) AS own"
        f" FROM {_JOINS} WHERE t.channel=:channel AND (t.thread=:thread OR t.person=:person)"
        f" AND t.kind<>'{TaskKind.SCHEDULE}' AND {_OPEN}"
    )
    [row] = execute(sql, {"thread": str(thread), "person": person, "channel": thread.channel})
    return int(row["here"]), int(row["own"])


def set_message(execute: Execute, number: int, message: int | None, conversation: str) -> None:
    """Record the message and the conversation of the run that does a task."""
    sql = "UPDATE tasks SET message=:message, conversation=:conversation WHERE id=:id"
    execute(sql, {"id": number, "message": message, "conversation": conversation})


def set_follow_up(execute: Execute, number: int, follow_up: str) -> None:
    """Set the request to the agent for the end of a command; "" for none."""
    execute("UPDATE tasks SET follow_up=:follow_up WHERE id=:id", {"id": number, "follow_up": follow_up})


def open_of_thread(execute: Execute, thread: Thread) -> list[TaskRow]:
    """Return the tasks that have not ended and report in a thread."""
    sql = f"{_ROWS} WHERE t.thread=:thread AND {_OPEN} ORDER BY t.id"
    return read_rows(execute, TaskRow, sql, thread=str(thread))


def claim_queued(execute: Execute, owner: str, now: float) -> list[TaskRow]:
    """Mark the queued tasks as running in a process, and return them."""
    sql = (
        f"UPDATE tasks SET state='{TaskState.RUNNING}', owner=:owner, started=:now WHERE {OPEN_TASK}"
        f" AND state='{TaskState.QUEUED}' RETURNING *"
    )
    return read_rows(execute, TaskRow, sql, owner=owner, now=now)


def lost_tasks(execute: Execute) -> list[TaskRow]:
    """Return the tasks that ran in processes that are dead."""
    sql = f"SELECT * FROM tasks WHERE {OPEN_TASK} AND state='{TaskState.RUNNING}' AND {DEAD_OR_NO_OWNER}"
    return read_rows(execute, TaskRow, sql)


def end_task(
    execute: Execute, number: int, state: TaskState, now: float, exit_code: int | None = None, reason: str = ""
) -> bool:
    """Record the end of a task. Returns False if its end is recorded already."""
    sql = (
        "UPDATE tasks SET state=:state, ended=:now, exit_code=:code, reason=:reason"
        f" WHERE id=:id AND {OPEN_TASK} RETURNING id"
    )
    return bool(execute(sql, {"id": number, "state": state, "now": now, "code": exit_code, "reason": reason}))


def cancel_all(execute: Execute, channel: str, person: str, now: float) -> list[int]:
    """Cancel the commands of a person, and what waits for its run and was withdrawn; return the tasks."""
    sql = (
        "UPDATE tasks SET state=:state, ended=:now WHERE channel=:channel AND person=:person"
        f" AND ({OPEN_TASK} OR {_WITHDRAWN}) RETURNING id"
    )
    values = {"channel": channel, "person": person, "state": TaskState.CANCELLED, "now": now}
    return [int(row["id"]) for row in execute(sql, values)]


def cancel_unbegun(execute: Execute, number: int, now: float) -> None:
    """Record that a task whose run has not begun is cancelled."""
    sql = "UPDATE tasks SET state=:state, ended=:now WHERE id=:id"
    execute(sql, {"id": number, "state": TaskState.CANCELLED, "now": now})
