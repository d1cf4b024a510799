"""Start background tasks: check the limits, and store what the task does in the transaction that starts it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from agent.messages import Message, Origin, Requester
from agent.permissions.rules import Subject, ToolUse, Verdict
from bot.base.times import local_time
from bot.config.team import Right
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Execute
from bot.database.states import TaskKind, TaskState
from bot.journey.exposure import inherit_exposure
from bot.rights import allowance
from bot.rights.allowance import Lineage, UsedUp
from bot.rights.current import Current
from bot.rights.permissions import judge_for_roles
from bot.service.task_rows import MAX_TITLE_CHARS, new_task
from bot.storage import agents, conversations, inbox, people, runs, tasks
from bot.storage.tasks import TaskRow
from catalogue import N_, _, localized
from channels.shared.texts import shorten

TakeTool = Callable[[Execute, str, str], float | None]
DISABLED = N_("Background tasks are disabled here. Whoever runs me can enable them in the configuration.")
TOO_MANY_HERE = N_("At most {limit} background tasks may run in one thread.")
TOO_MANY = N_("One person may have at most {limit} background tasks at once.")
RULED_OUT = N_("I may not repeat this command without asking. Ask me for it in words instead.")
NOT_ALLOWED = N_("The role of the person does not allow work here.")
TOO_OLD = N_("I no longer know which agent worked on this task. Ask me for it in words instead.")
RATE_REACHED = N_("I may not repeat this command now: it has reached its rate limit. There is room again at {time}.")


class TaskRefused(Exception):
    """A task that may not start; the message is a translated sentence."""

    def __init__(self, words: str, used_up: UsedUp | None = None) -> None:
        super().__init__(words)
        self.used_up = used_up  # the allowance that refused it


@dataclass(frozen=True, slots=True)
class TaskPlace(Requester):
    """For whom a task works, where it reports, and in which conversation's sandbox a command runs."""

    conversation: str = ""
    lineage: Lineage | None = None  # None: a person starts it
    people: tuple[str, ...] = ()  # ids of all for whom the run works that starts it; none: only the person
    run: int | None = None  # that starts it

    @classmethod
    def of_task(cls, row: TaskRow) -> TaskPlace:
        """Return the place of a task."""
        who = row.who
        return cls(who.person, who.thread, who.private, row.conversation, run=row.begun_in)


@dataclass(frozen=True, slots=True)
class Worker:
    """Who works on a background task: a sub-agent of this kind for an agent, with the model of its conversation."""

    kind: str
    agent: str
    model: str
    effort: str


def start_command(
    execute: Execute,
    current: Current,
    who: TaskPlace,
    key: str,
    tool: str,
    title: str,
    command: str,
    follow_up: str,
    now: float,
) -> int:
    """Queue a command that a tool starts, and return its number. Raises TaskRefused."""
    if found := tasks.find_started(execute, key):
        return found.id
    _check_limits(execute, current, who)
    state = TaskState.QUEUED
    values = new_task(who, TaskKind.COMMAND, key, title, command, now, state, who.conversation, who.run, tool)
    number = tasks.add_task(execute, values)
    if follow_up:
        _take_allowance(execute, current, who, number, now)
        tasks.set_follow_up(execute, number, follow_up)
    _record_start(execute, who, number, TaskKind.COMMAND)
    return number


def start_agent(
    execute: Execute, current: Current, who: TaskPlace, key: str, title: str, prompt: str, now: float, worker: Worker
) -> int:
    """Store the message that a run of its own answers, and return the number of its task. Raises TaskRefused."""
    if found := tasks.find_started(execute, key):
        return found.id
    _check_limits(execute, current, who)
    values = new_task(who, TaskKind.AGENT, key, title, prompt, now, TaskState.RUN, who.conversation, who.run)
    number = tasks.add_task(execute, values)
    lineage = _take_allowance(execute, current, who, number, now)
    _record_start(execute, who, number, TaskKind.AGENT)
    conversation = f"task:{number}"
    conversations.place_conversation(execute, conversation, who.thread, shorten(title, MAX_TITLE_CHARS), now)
    message = Message(
        who.thread,
        f"task:{number}",
        "",
        who.person,
        prompt,
        now,
        private=who.private,
        root=lineage.root,
        generation=lineage.generation,
        origin=Origin.TASK,
        worker=worker.kind,
        bound_by=tuple(person for person in who.people if person != who.person.id),
    )
    inherit_exposure(execute, who.conversation, conversation)
    conversations.choose_model(execute, conversation, worker.model, worker.effort)
    agents.choose_agent(execute, conversation, worker.agent or agents.DEFAULT)
    stored = inbox.store_message(execute, message, conversation, ready=now, received=now)
    tasks.set_message(execute, number, stored, conversation)
    conversations.refresh_pending(execute, conversation)
    return number


def store_follow_up(execute: Execute, row: TaskRow, text: str, now: float) -> None:
    """Let the agent continue in the conversation of a task.

    It has the rights that its person and all have for whom the run worked that started it, as they are when a turn
    takes it.
    """
    lineage, who = allowance.next_step(execute, f"task:{row.id}"), row.who
    message = Message(
        who.thread,
        f"task:{row.id}",
        "",
        who.person,
        text,
        now,
        private=who.private,
        root=lineage.root,
        generation=lineage.generation,
        origin=Origin.TOOL,
        bound_by=tuple(person for person in _people_of(execute, row) if person != row.person),
    )
    inbox.store_message(execute, message, row.conversation, ready=now, received=now)
    conversations.refresh_pending(execute, row.conversation)


def retry_task(execute: Execute, current: Current, row: TaskRow, key: str, now: float, take_tool: TakeTool) -> int:
    """Start the work of a task again, for its person, and return the new number. Raises TaskRefused.

    `take_tool` counts the call of a tool under a key, or returns the unix time from which on its rate limit has room.
    """
    who = TaskPlace.of_task(row)
    if not current.access.may(execute, who.thread, row.person, Right.TALK):
        audit.record(execute, AuditEvent(AuditKind.ACCESS_DENIED, who.thread, row.person))
        raise TaskRefused(_(NOT_ALLOWED))
    if row.kind == TaskKind.COMMAND:
        if _judge(execute, current, row) != "allow":
            _record_call(execute, row, "denied")
            raise TaskRefused(_(RULED_OUT))
        _record_call(execute, row, "allowed")
        _check_limits(execute, current, who)  # only what is allowed counts for the rate
        if until := take_tool(execute, _use_of(row).name, key):
            _record_call(execute, row, "rate")
            zone = people.zone_of(execute, row.channel, row.person) or current.config.time_zone or "UTC"
            raise TaskRefused(_(RATE_REACHED, time=f"{local_time(until + 59, zone):%Y-%m-%d %H:%M}"))
        return start_command(execute, current, who, key, row.tool, row.title, row.what, row.follow_up, now)
    worker, bound_by = _worker_of(execute, row)
    return start_agent(execute, current, replace(who, people=bound_by), key, row.title, row.what, now, worker)


def _worker_of(execute: Execute, row: TaskRow) -> tuple[Worker, tuple[str, ...]]:
    """Return who worked on a task of an agent, and whose rights bound it. Raises TaskRefused if that is not known."""
    here = conversations.find_conversation(execute, row.conversation)
    found = inbox.find_message(execute, f"task:{row.id}")
    if here is None or found is None or not found.message.worker:
        raise TaskRefused(_(TOO_OLD))
    return Worker(found.message.worker, here.agent, here.model, here.effort), found.message.bound_by


def _take_allowance(execute: Execute, current: Current, who: TaskPlace, number: int, now: float) -> Lineage:
    """Count work that goes on without a person, and return the lineage of its message. Raises TaskRefused."""
    key = f"task:{number}"
    lineage = who.lineage or Lineage(audit.digest(key))
    used_up = allowance.take(execute, current.follow_ups, key, lineage, who.thread.channel, who.person.id, now)
    if used_up:
        raise TaskRefused(localized(used_up.text), used_up)
    return allowance.next_step(execute, key)


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


def is_forbidden(execute: Execute, current: Current, row: TaskRow) -> bool:
    """Return whether a rule or a role of its people denies a queued command now, and record that in the audit.

    What rules ask was decided when the command was queued.
    """
    if _judge(execute, current, row) != "deny":
        return False
    _record_call(execute, row, "denied")
    return True


def _judge(execute: Execute, current: Current, row: TaskRow) -> Verdict:
    """Judge the command of a task by the rules and the roles of now."""
    roles = [current.access.role_of(execute, row.place, person) for person in _people_of(execute, row)]
    return judge_for_roles(current.config, roles, _use_of(row)).verdict


def _people_of(execute: Execute, row: TaskRow) -> list[str]:
    """Return the ids of all whose rights bound a command: its person, and all for whom the run worked that began it."""
    run = runs.find_run(execute, row.begun_in) if row.begun_in else None
    return list(dict.fromkeys([row.person, *(runs.people_of(run) if run else ())]))


def _record_start(execute: Execute, who: TaskPlace, number: int, kind: TaskKind) -> None:
    what: dict[str, int | str] = {"id": number, "kind": kind}
    audit.record(execute, AuditEvent(AuditKind.TASK_CHANGED, who.thread, who.person.id, what=what, result="started"))


def _record_call(execute: Execute, row: TaskRow, result: str) -> None:
    """Record in the audit what became of a command, as for a call of the agent."""
    kind = AuditKind.TOOL_RESULT if result == "rate" else AuditKind.TOOL_CALL
    what = {"tool": _use_of(row).name, "arguments": audit.digest(row.what)}
    what |= {"by": "rule"} if result == "denied" else {}
    audit.record(execute, AuditEvent(kind, row.place, row.person, what=what, result=result))


def _use_of(row: TaskRow) -> ToolUse:
    """Return the call that started a command. The title of a skill's program is the name of the skill."""
    if row.tool == "bash":
        return ToolUse("bash", {"command": row.what}, Subject("command", "shell"), "allow")
    return ToolUse("run_skill", {"name": row.title}, Subject("name", "skill"), "allow")
