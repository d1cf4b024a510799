"""Start background tasks: check the limits, and store what the task does in the transaction that starts it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.messages import Author, Message, Thread
from agent.permissions.rules import Subject, ToolUse, judge
from bot.access import AccessPolicy
from bot.config.team import Right
from bot.current import Current
from bot.permissions import rules_in_force
from bot.storage import conversations, inbox, tasks
from bot.storage.database import Execute
from bot.storage.states import TaskKind, TaskState
from bot.storage.tasks import TaskRow
from bot.work_commands import without_formatting
from catalogue import N_, _
from channels.shared.texts import shorten

if TYPE_CHECKING:
    from bot.storage.schedules import ScheduleRow

MAX_TITLE_CHARS = 80
DISABLED = N_("Background tasks are disabled here. Whoever runs me can enable them in the configuration.")
TOO_MANY_HERE = N_("At most {limit} background tasks may run in one thread.")
TOO_MANY = N_("One person may have at most {limit} background tasks at once.")
RULED_OUT = N_("I may not repeat this command without asking. Ask me for it in words instead.")
NOT_ALLOWED = N_("The role of the person does not allow work here.")


class TaskRefused(Exception):
    """A task that may not start; the message is a translated sentence."""


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """For whom a task works, where it reports, and in which conversation's sandbox a command runs."""

    person: Author
    thread: Thread
    private: bool
    conversation: str

    @classmethod
    def of_task(cls, row: TaskRow) -> TaskPlace:
        """Return the place of a task."""
        return cls(row.author, row.place, bool(row.private), row.conversation)


def start_command(
    execute: Execute, current: Current, who: TaskPlace, key: str, title: str, command: str, follow_up: str, now: float
) -> int:
    """Queue a command and return its number; wake the runner after the commit. Raises TaskRefused."""
    if found := tasks.find_started(execute, key):
        return found.id
    _check_limits(execute, current, who)
    return tasks.add_task(execute, _values(who, TaskKind.COMMAND, key, title, command, now) | {"follow_up": follow_up})


def start_agent(
    execute: Execute, current: Current, who: TaskPlace, key: str, title: str, prompt: str, now: float
) -> int:
    """Store the message that a run of its own answers, and return the number of its task. Raises TaskRefused."""
    if found := tasks.find_started(execute, key):
        return found.id
    _check_limits(execute, current, who)
    number = tasks.add_task(execute, _values(who, TaskKind.AGENT, key, title, prompt, now, TaskState.RUN))
    conversation = f"task:{number}"
    conversations.place_conversation(execute, conversation, who.thread, shorten(title, MAX_TITLE_CHARS), now)
    message = Message(who.thread, f"task:{number}", "", who.person, prompt, now, private=who.private, mode="task")
    stored = inbox.store_message(execute, message, conversation, ready=now, received=now)
    tasks.set_message(execute, number, stored, conversation)
    conversations.refresh_pending(execute, conversation)
    return number


def add_fire(execute: Execute, row: ScheduleRow, message: Message, stored: int | None, now: float) -> None:
    """Store the task of a fire: the run that answers this message."""
    who = TaskPlace(message.author, message.thread, message.private, row.conversation)
    key = f"fire:{message.key}"
    values = _values(who, TaskKind.SCHEDULE, key, row.what, str(row.id), now, TaskState.RUN)
    tasks.add_task(execute, values | {"message": stored})


def store_follow_up(execute: Execute, policy: AccessPolicy, row: TaskRow, text: str, now: float) -> bool:
    """Let the agent continue in the conversation of a task, as its person may now. Return whether it does."""
    message = Message(row.place, f"task:{row.id}", "", row.author, text, now, private=bool(row.private))
    talks = policy.may(execute, row.place, row.person, Right.TALK)
    if not (talks and policy.may_enter(execute, message)):
        return False
    inbox.store_message(execute, message, row.conversation, ready=now, received=now)
    conversations.refresh_pending(execute, row.conversation)
    return True


def retry_task(execute: Execute, current: Current, row: TaskRow, key: str, now: float) -> int:
    """Start the work of a task again, for its person, and return the new number. Raises TaskRefused."""
    who = TaskPlace.of_task(row)
    if row.kind == TaskKind.COMMAND:
        _check_rules(execute, current, who, row.what)
        return start_command(execute, current, who, key, row.title, row.what, row.follow_up, now)
    return start_agent(execute, current, who, key, row.title, row.what, now)


def _check_limits(execute: Execute, current: Current, who: TaskPlace) -> None:
    limits = current.config.tasks
    if not limits.per_thread:
        raise TaskRefused(_(DISABLED))
    if not current.access.may(execute, who.thread, who.person.id, Right.TALK):
        raise TaskRefused(_(NOT_ALLOWED))
    here, own = tasks.count_open(execute, who.thread, who.person.id)
    if here >= limits.per_thread:
        raise TaskRefused(_(TOO_MANY_HERE, limit=limits.per_thread))
    if own >= limits.per_person:
        raise TaskRefused(_(TOO_MANY, limit=limits.per_person))


def _check_rules(execute: Execute, current: Current, who: TaskPlace, command: str) -> None:
    """Judge a command that is repeated by the rules of now: without a question. Raises TaskRefused."""
    role = current.access.role_of(execute, who.thread, who.person.id)
    use = ToolUse("bash", {"command": command}, Subject("command", "shell"), "allow")
    if judge(rules_in_force(current.config, role), use).verdict != "allow":
        raise TaskRefused(_(RULED_OUT))


def _values(
    who: TaskPlace, kind: TaskKind, key: str, title: str, what: str, now: float, state: TaskState = TaskState.QUEUED
) -> dict[str, Any]:
    """Return the columns of a new task."""
    return {
        "key": key,
        "kind": kind,
        "state": state,
        "channel": who.thread.channel,
        "person": who.person.id,
        "name": who.person.name,
        "language": who.person.language,
        "guest": int(who.person.guest),
        "private": int(who.private),
        "thread": str(who.thread),
        "conversation": who.conversation,
        "title": shorten(without_formatting(title), MAX_TITLE_CHARS) or "-",
        "what": what,
        "follow_up": "",
        "created": now,
    }
