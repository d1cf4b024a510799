"""The rows of background tasks: every one that starts is stored here, that of a schedule's fire, too."""

from __future__ import annotations

from typing import Any

from agent.messages import Message, Requester
from agent.permissions.invisible import show_line
from bot.base.plain_text import plain_line, without_formatting
from bot.database.database import Execute
from bot.database.rows import requester_columns
from bot.database.states import TaskKind, TaskState
from bot.storage import tasks
from bot.storage.schedules import ScheduleRow
from bot.storage.tasks import TaskRow
from catalogue import _
from channels.shared.texts import shorten

MAX_TITLE_CHARS = 80


def add_fire(execute: Execute, row: ScheduleRow, message: Message, stored: int | None, now: float) -> None:
    """Store the task of a fire: the run that answers this message."""
    who = Requester(message.author, message.thread, message.private)
    key = f"fire:{message.key}"
    values = new_task(who, TaskKind.SCHEDULE, key, row.what, str(row.id), now, TaskState.RUN, row.conversation)
    tasks.add_task(execute, values | {"message": stored})


def shown_title(row: TaskRow) -> str:
    """Return the title of a task for people: a command as code, as it is."""
    if row.kind != TaskKind.COMMAND or row.tool != "bash":
        return _("“{title}”", title=plain_line(row.title))
    return show_line(shorten(" ".join(row.what.split()), MAX_TITLE_CHARS))


def _title_of(text: str) -> str:
    """Return a text as the title of a task."""
    return shorten(without_formatting(text), MAX_TITLE_CHARS) or "-"


def new_task(
    who: Requester,
    kind: TaskKind,
    key: str,
    title: str,
    what: str,
    now: float,
    state: TaskState = TaskState.QUEUED,
    conversation: str = "",
    begun_in: int | None = None,
    tool: str = "",
) -> dict[str, Any]:
    """Return the columns of a new task."""
    return {
        "key": key,
        "kind": kind,
        "state": state,
        **requester_columns(who, "person"),
        "conversation": conversation,
        "title": _title_of(title),
        "what": what,
        "follow_up": "",
        "created": now,
        "begun_in": begun_in,
        "tool": tool,
    }
