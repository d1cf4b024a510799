"""What goes on in the background here: name it, end it, and let nothing follow it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from agent.blocks import command_hint
from agent.messages import Thread
from bot.commands.call import CommandCall
from bot.rights import deeds
from bot.service.plain_text import plain_line
from bot.storage import audit, conversations, inbox, runs, tasks
from bot.storage.audit import AuditEvent, AuditKind
from bot.storage.database import Execute
from bot.storage.states import InboxState, TaskKind, TaskState
from bot.storage.tasks import TaskRow
from catalogue import _, join_sentences, list_items, ngettext

MAX_NAMED = 10  # in an answer
MAX_WITHDRAWN = 50


def cancel_task(
    execute: Execute,
    row: TaskRow,
    person: str,
    now: float,
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
        _cancel_unbegun(execute, row, now)
        return lambda: None
    if not tasks.end_task(execute, row.id, TaskState.CANCELLED, now):
        return None
    return lambda: None  # who runs the command reads that it has ended


def _cancel_unbegun(execute: Execute, row: TaskRow, now: float) -> None:
    """Cancel a task whose run has not begun, with the message that the run would answer."""
    if row.message is not None:
        inbox.set_state(execute, row.message, InboxState.WITHDRAWN)
        conversations.refresh_pending(execute, row.conversation)
    tasks.cancel_unbegun(execute, row.id, now)


def end_follow_ups(execute: Execute, thread: Thread, person: str, now: float, *, everybody: bool) -> list[TaskRow]:
    """Let nothing follow from the tasks of a person in a thread, or of `everybody`, and let what has not begun never
    begin. Return the commands among them, which go on."""
    rows = stoppable_tasks(execute, thread, person, everybody=everybody)
    for row in rows:
        if row.kind == TaskKind.COMMAND:
            tasks.set_follow_up(execute, row.id, "")
        elif row.run is None:
            _cancel_unbegun(execute, row, now)
    return [row for row in rows if row.kind == TaskKind.COMMAND]


def stoppable_tasks(execute: Execute, thread: Thread, person: str, *, everybody: bool) -> list[TaskRow]:
    """Return the open tasks in a thread that a person may stop: their own, or those of `everybody`."""
    return [row for row in tasks.open_of_thread(execute, thread) if everybody or row.person == person]


def end_background(call: CommandCall, *, everybody: bool) -> str:
    """Let nothing follow from the background tasks here, end their commands, and name these; "" for none.

    A button stops one reply: the commands go on.
    """
    person = call.message.author.id
    rows = end_follow_ups(call.execute, call.thread, person, call.now, everybody=everybody)
    if not call.message.target:
        ends = [cancel_task(call.execute, row, person, call.now, call.service.stop_run) for row in rows]
        call.after.extend(filter(None, ends))
        return _("These commands in the background have ended: {tasks}.", tasks=_name_tasks(rows)) if rows else ""
    sentences = [
        _(
            "Background task {number} goes on, and nothing follows it. `{command}` ends it.",
            number=row.id,
            command=command_hint(f"task {row.id} cancel"),
        )
        for row in rows
    ]
    return join_sentences(*sentences)


def describe_background(call: CommandCall) -> str:
    """Name the commands in the background that this person may stop here; "" for none."""
    everybody, person = call.may(deeds.ACT_FOR_OTHERS), call.message.author.id
    found = stoppable_tasks(call.execute, call.thread, person, everybody=everybody)
    rows = [row for row in found if row.kind == TaskKind.COMMAND]
    hint = command_hint("stop")
    return (
        _("In the background: {tasks}. `{command}` ends this.", tasks=_name_tasks(rows), command=hint) if rows else ""
    )


def _name_tasks(rows: Sequence[TaskRow]) -> str:
    named = [f"{row.id} (“{plain_line(row.title)}”)" for row in rows[:MAX_NAMED]]
    if more := rows[MAX_NAMED:]:
        named.append(ngettext("{n} more", "{n} more", len(more)))
    return list_items(named)


def withdraw_follow_ups(call: CommandCall) -> None:
    """Let the agent not go on by itself in the conversation that ends, for this person."""
    person = call.message.author.id
    for task in tasks.open_of_thread(call.execute, call.thread):
        if task.conversation == call.conversation and task.person == person:
            tasks.set_follow_up(call.execute, task.id, "")
    for row in inbox.pending_rows(call.execute, call.conversation, MAX_WITHDRAWN):
        found = tasks.find_task(call.execute, int(row.key[5:])) if row.key.startswith("task:") else None
        if found and found.person == person:
            inbox.set_state(call.execute, row.id, InboxState.WITHDRAWN)
    conversations.refresh_pending(call.execute, call.conversation)
