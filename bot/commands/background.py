"""Name what goes on in the background here, end it, and let nothing follow it.

Pause, resume and delete a schedule, whoever may: its owner, who is told in words, or an operator over HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from agent.blocks import command_hint
from agent.messages import Thread
from bot.base.times import next_time
from bot.commands.call import CommandCall
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Execute
from bot.database.states import InboxState, ScheduleState, TaskKind, TaskState
from bot.journey import questions
from bot.rights import deeds
from bot.service.schedule_changes import withdraw_fire
from bot.service.task_rows import shown_title
from bot.storage import conversations, inbox, runs, schedules, tasks
from bot.storage.schedules import ScheduleRow
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
    channel: str = "",
) -> Callable[[], None] | None:
    """Cancel an open task for a person of a channel ("": its own). Return what to call after the commit, None if the
    task has ended."""
    if not row.is_open:
        return None
    what: dict[str, int | str] = {"id": row.id, "kind": row.kind}
    audit.record(execute, AuditEvent(AuditKind.TASK_CHANGED, row.place, person, channel, what=what, result="cancelled"))
    if row.is_waiting:  # an answer that no turn has taken yet has no effect, either
        inbox.withdraw_conversation(execute, row.conversation)
        questions.close_open_questions(execute, row.conversation, now)
        conversations.refresh_pending(execute, row.conversation)
        return lambda: None
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


def stoppable_tasks(execute: Execute, thread: Thread, person: str, *, everybody: bool) -> list[TaskRow]:
    """Return the open tasks in a thread that a person may stop: their own, or those of `everybody`."""
    return [row for row in tasks.open_of_thread(execute, thread) if everybody or row.person == person]


def end_background(call: CommandCall, *, everybody: bool) -> str:
    """End the background tasks here, and let nothing follow from them; name those that no reply of their own ends, ""
    for none.

    A button stops one reply: commands, and what waits for an answer, go on.
    """
    rows = stoppable_tasks(call.execute, call.thread, call.message.author.id, everybody=everybody)
    for row in rows:
        tasks.set_follow_up(call.execute, row.id, "")
    if call.message.target:
        return _end_beside_reply(call, rows)
    ended = [row for row in rows if row.run is None or row.is_waiting]
    for row in ended:
        if stop := cancel_task(call.execute, row, call.message.author.id, call.now, call.service.stop_run):
            call.after.append(stop)
    return _("This in the background has ended: {tasks}.", tasks=_name_tasks(ended)) if ended else ""


def _end_beside_reply(call: CommandCall, rows: Sequence[TaskRow]) -> str:
    """Let what has not begun never begin; name the commands, which go on."""
    for row in rows:
        if row.kind != TaskKind.COMMAND and row.run is None:
            _cancel_unbegun(call.execute, row, call.now)
    sentences = [
        _(
            "Background task {number} goes on, and nothing follows it. `{command}` ends it.",
            number=row.id,
            command=command_hint(f"task {row.id} cancel"),
        )
        for row in rows
        if row.kind == TaskKind.COMMAND
    ]
    return join_sentences(*sentences)


def describe_background(call: CommandCall) -> str:
    """Name what goes on in the background that this person may stop here, and say how much others have; "" for none."""
    everybody, person = call.may(deeds.ACT_FOR_OTHERS), call.message.author.id
    rows = stoppable_tasks(call.execute, call.thread, person, everybody=everybody)
    hint = command_hint("stop")
    own = _("In the background: {tasks}. `{command}` ends this.", tasks=_name_tasks(rows), command=hint) if rows else ""
    return join_sentences(own, describe_others(call))


def describe_others(call: CommandCall) -> str:
    """Say how many tasks here are not this person's to stop; "" for none."""
    everybody, person = call.may(deeds.ACT_FOR_OTHERS), call.message.author.id
    found = tasks.open_of_thread(call.execute, call.thread)
    others = sum(not everybody and row.person != person for row in found)
    sentence = ngettext("{n} task of others is at work here.", "{n} tasks of others are at work here.", others)
    return sentence if others else ""


def _name_tasks(rows: Sequence[TaskRow]) -> str:
    named = [f"{row.id} ({shown_title(row)})" for row in rows[:MAX_NAMED]]
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


def pause_schedule(execute: Execute, row: ScheduleRow) -> None:
    """Let an active schedule not run until it is resumed."""
    schedules.set_schedule_state(execute, row.id, ScheduleState.PAUSED)
    withdraw_fire(execute, row)


def resume_schedule(execute: Execute, row: ScheduleRow, now: float) -> bool:
    """Continue from now: what was due during the pause is not made up for. False: it has no further time.

    Raises TimingError.
    """
    at = next_time(row.timing, now)
    if at is not None:
        schedules.set_schedule_state(execute, row.id, ScheduleState.ACTIVE, at)
    return at is not None


def delete_schedule(
    execute: Execute, row: ScheduleRow, by: str, now: float, stop_run: Callable[[int, str], None], channel: str = ""
) -> Sequence[Callable[[], None]]:
    """Delete a schedule, and end the work that it has begun. Return what to call after the commit."""
    withdraw_fire(execute, row)
    begun = [task for task in tasks.open_of_thread(execute, row.place) if task.conversation == row.conversation]
    stops = [cancel_task(execute, task, by, now, stop_run, channel) for task in begun]
    questions.close_open_questions(execute, row.conversation, now)
    schedules.delete_schedule(execute, row.id)
    return [stop for stop in stops if stop]
