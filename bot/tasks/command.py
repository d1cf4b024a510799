"""`/tasks` lists background tasks; `/task N` shows one, cancels it or starts it again."""

from __future__ import annotations

from dataclasses import replace

from agent.blocks import command_hint
from agent.messages import Kind
from bot.base.times import local_time
from bot.commands.background import cancel_task
from bot.commands.call import CommandCall
from bot.database.rows import parse_row_id
from bot.database.states import QuestionState, RunState, TaskKind, TaskState
from bot.rights import deeds
from bot.rights.approvals import may_answer
from bot.service.task_rows import shown_title
from bot.storage import conversations, inbox, people, tasks
from bot.storage import questions as stored_questions
from bot.storage.tasks import TaskRow
from bot.tasks.runner import enqueue_tail
from bot.tasks.starting import TaskRefused, retry_task
from catalogue import N_, _, format_duration, ngettext

TASK_WORDS = "NUMBER | NUMBER cancel | NUMBER retry | NUMBER answer WORDS"
LINES: dict[str, str] = {
    TaskState.QUEUED: N_("{number}. ⏳ {title}: it waits to begin"),
    TaskState.RUNNING: N_("{number}. ▶️ {title}: it has run for {time}"),
    TaskState.DONE: N_("{number}. ✅ {title}: done at {at}"),
    TaskState.FAILED: N_("{number}. ❌ {title}: failed at {at}"),
    TaskState.LOST: N_("{number}. ⚠️ {title}: lost at {at}"),
    TaskState.CANCELLED: N_("{number}. ⏹ {title}: cancelled at {at}"),
    RunState.STOPPED: N_("{number}. ⏹ {title}: cancelled at {at}"),
    RunState.WAITING: N_("{number}. ❓ {title}: it waits for an answer"),
}
UNKNOWN = N_("I don't know a task {number} here. `{command}` lists them.")


def asks_retry(words: str) -> bool:
    """Return whether these words of `/task` have work done again."""
    return words.lower().endswith("retry")


def tasks_command(call: CommandCall) -> str:
    """List the person's tasks, or everybody's for operators: in a shared chat, those that report there."""
    if call.words:
        return task_command(call)
    rows = _rows(call)
    others = _count_others(call)
    told = ngettext("{n} task of others is at work here.", "{n} tasks of others are at work here.", others)
    if not rows:
        return told if others else _("There are no background tasks here.")
    lines = [_("Background tasks, newest first:"), *(_line(call, row) for row in rows)]
    return "\n".join([*lines, *([told] if others else []), "", _hint(rows[0])])


def _hint(row: TaskRow) -> str:
    """Say what can be done with the newest task."""
    show = command_hint(f"task {row.id}")
    if row.is_open:
        return _(
            "`{show}` shows its output, `{cancel}` ends it.", show=show, cancel=command_hint(f"task {row.id} cancel")
        )
    retry = command_hint(f"task {row.id} retry")
    return _("`{show}` shows its output, `{retry}` starts it again.", show=show, retry=retry)


def task_command(call: CommandCall) -> str:
    """Show, cancel or retry one task."""
    word, _space, verb = call.words.strip("# ").partition(" ")
    given, _space, said = verb.strip().partition(" ")
    verb = verb.strip().lower()
    if given.lower() == "answer" and said.strip():
        verb = "answer"
    if not word.isdecimal() or verb not in ("", "tail", "cancel", "retry", "answer"):
        return _(
            "Use `{show}`, `{cancel}`, `{retry}` or `{answer}`. `{list}` lists the tasks.",
            show=command_hint("task 1"),
            answer=command_hint("task 1 answer WORDS"),
            cancel=command_hint("task 1 cancel"),
            retry=command_hint("task 1 retry"),
            list=command_hint("tasks"),
        )
    known = parse_row_id(word)
    row = tasks.find_task(call.execute, known) if known is not None else None
    if row is None or not _may_see(call, row):
        return _(UNKNOWN, number=word, command=command_hint("tasks"))
    match verb:
        case "cancel":
            return _cancel(call, row)
        case "retry":
            return _retry(call, row)
        case "answer":
            return _answer(call, row, said.strip())
    line = _line(call, row)
    if row.kind != TaskKind.COMMAND or row.shown == TaskState.QUEUED:
        return line
    enqueue_tail(call.execute, row.id, line, call.message.key, str(call.thread))
    return ""


def _answer(call: CommandCall, row: TaskRow, words: str) -> str:
    """Give the words of a person to what a task asks, if they may answer that."""
    person, unresolved = call.message.author.id, stored_questions.unresolved_questions(call.execute, row.conversation)
    asked = [] if row.kind == TaskKind.COMMAND else [each for each in unresolved if each.state == QuestionState.OPEN]
    if not asked:
        return _("Task {number} asks nothing now.", number=row.id)
    if not any(may_answer(call.execute, call.current.access, each, call.thread, person, at=call.now) for each in asked):
        return _("Task {number} asks somebody else.", number=row.id)
    message = call.message
    answer = replace(
        message, key=f"answer:{message.key}", kind=Kind.CHAT, text=words, native=False, reply_to="", to_bot=False
    )
    inbox.store_message(call.execute, answer, row.conversation, ready=call.now, received=call.now)
    conversations.refresh_pending(call.execute, row.conversation)
    return _("Task {number} goes on with your answer.", number=row.id) if message.native else ""


def _rows(call: CommandCall) -> list[TaskRow]:
    person = call.message.author.id
    if not call.message.private:
        rows = tasks.list_of_chat(call.execute, call.thread)
    elif call.may(deeds.ACT_FOR_OTHERS):
        rows = tasks.list_of_channel(call.execute, call.thread.channel)
    else:
        return tasks.list_of_person(call.execute, call.thread.channel, person)
    return [row for row in rows if _may_see(call, row)]


def _count_others(call: CommandCall) -> int:
    """Return how many tasks report in this chat and have not ended that the person may not see."""
    if call.message.private:
        return 0
    here = tasks.list_of_chat(call.execute, call.thread)
    return sum(row.is_open and not _may_see(call, row) for row in here)


def _may_see(call: CommandCall, row: TaskRow) -> bool:
    """Return whether the task is the person's, or it reports here or they ask in private, and they are an operator of
    the chat where it reports."""
    there, here = row.place, call.thread
    if there.channel != here.channel:
        return False
    if row.person == call.message.author.id:
        return True
    same = (there.workspace, there.chat) == (here.workspace, here.chat)
    is_operator = call.current.access.may_do(call.execute, there, call.message.author.id, deeds.ACT_FOR_OTHERS)
    return is_operator and (same or call.message.private)


def _line(call: CommandCall, row: TaskRow) -> str:
    zone = people.zone_of(call.execute, call.thread.channel, call.message.author.id) or call.current.config.time_zone
    at = f"{local_time(row.until or row.created, zone or 'UTC'):%Y-%m-%d %H:%M}"
    time = format_duration(max(0.0, call.now - (row.started or row.created)))
    return _(
        LINES[row.shown],
        number=row.id,
        title=shown_title(row),
        at=at,
        time=time,
    )


def _cancel(call: CommandCall, row: TaskRow) -> str:
    stop = cancel_task(call.execute, row, call.message.author.id, call.now, call.service.stop_run)
    if stop is None:
        return _("Task {number} has ended already.", number=row.id)
    call.after.append(stop)
    return _("Task {number} is cancelled.", number=row.id)


def _retry(call: CommandCall, row: TaskRow) -> str:
    if row.is_open:
        return _(
            "Task {number} has not ended. `{command}` ends it.",
            number=row.id,
            command=command_hint(f"task {row.id} cancel"),
        )
    if row.kind == TaskKind.SCHEDULE:
        command = command_hint(f"schedule run {row.what}")
        return _("Task {number} belongs to a schedule. `{command}` runs that again.", number=row.id, command=command)
    try:
        key, take_tool = f"retry:{call.message.key}", call.service.take_tool
        number = retry_task(call.execute, call.current, row, key, call.now, take_tool)
    except TaskRefused as error:
        return str(error)
    return _("Trying again as task {number}.", number=number)
