"""Cancel background tasks: record the end, then kill what runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from agent.messages import Thread
from bot.storage import audit, conversations, inbox, runs, tasks
from bot.storage.audit import AuditEvent, AuditKind
from bot.storage.database import Execute
from bot.storage.states import InboxState, TaskKind, TaskState
from bot.storage.tasks import TaskRow


def cancel_task(
    execute: Execute,
    row: TaskRow,
    person: str,
    now: float,
    stop_command: Callable[[int], None],
    stop_run: Callable[[int, str], None],
) -> Callable[[], None] | None:
    """Cancel an open task for a person. Return what to call after the commit, None if the task has ended."""
    if not row.is_open:
        return None
    what: dict[str, int | str] = {"id": row.id, "kind": row.kind}
    audit.record(execute, AuditEvent(AuditKind.TASK_CHANGED, row.place, person, what=what, result="cancelled"))
    if row.run is not None:
        runs.request_stop(execute, row.run, person)
        return partial(stop_run, row.run, person)
    if row.message is not None:  # its run has not begun
        inbox.set_state(execute, row.message, InboxState.WITHDRAWN)
        conversations.refresh_pending(execute, row.conversation)
        tasks.cancel_unbegun(execute, row.id, now)
        return lambda: None
    if not tasks.end_task(execute, row.id, TaskState.CANCELLED, now):
        return None
    return partial(stop_command, row.id)


def end_follow_ups(execute: Execute, thread: Thread, person: str, now: float, *, everybody: bool) -> list[TaskRow]:
    """Let nothing follow from the tasks of a person in a thread, or of `everybody`, and let what has not begun never
    begin. Return the commands among them, which go on."""
    rows = stoppable_tasks(execute, thread, person, everybody=everybody)
    for row in rows:
        if row.kind == TaskKind.COMMAND:
            tasks.set_follow_up(execute, row.id, "")
        elif row.run is None:
            if row.message is not None:
                inbox.set_state(execute, row.message, InboxState.WITHDRAWN)
                conversations.refresh_pending(execute, row.conversation)
            tasks.cancel_unbegun(execute, row.id, now)
    return [row for row in rows if row.kind == TaskKind.COMMAND]


def stoppable_tasks(execute: Execute, thread: Thread, person: str, *, everybody: bool) -> list[TaskRow]:
    """Return the open tasks in a thread that a person may stop: their own, or those of `everybody`."""
    return [row for row in tasks.open_of_thread(execute, thread) if everybody or row.person == person]
