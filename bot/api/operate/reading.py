"""Read what operators see, in one transaction each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from agent.messages import Thread
from bot.api.operate.answers import (
    AuditAnswer,
    AuditList,
    DeadAnswer,
    DeadList,
    FeedbackAnswer,
    FeedbackList,
    FireAnswer,
    QueuedAnswer,
    ScheduleAnswer,
    ScheduleList,
    TaskAnswer,
    TaskList,
    Thumbs,
    TurnAnswer,
    TurnList,
    UsageAnswer,
    UsageList,
)
from bot.api.shared.caller import Caller
from bot.api.shared.requests import PAGE, make_cursor
from bot.commands.feature import Door
from bot.database import audit
from bot.database.database import Database, Execute
from bot.database.web_people import true_person
from bot.journey.running_turn import RunningTurn
from bot.rights.audit_reading import aliases_of, newest_events, readable_places
from bot.rights.known_people import name_of
from bot.status.live_view import describe_elsewhere, turns_in_progress
from bot.storage import conversations, inbox, outbox, outcomes, schedules, tasks, usage
from bot.storage.conversations import WaitingRow
from bot.storage.operator_views import TurnElsewhere
from bot.storage.outcomes import FEEDBACK_DAYS
from bot.storage.schedules import ScheduleRow
from bot.storage.tasks import TaskRow
from bot.storage.usage import Spending, by_day

DAY_SECONDS = 86400.0


def name_person(execute: Execute, channel: str, id: str) -> tuple[str, str]:
    """Return a person as `CHANNEL:ID` of their platform, and how people call them; "" for nobody."""
    if not id:
        return "", ""
    channel, id = true_person(channel, id)
    return audit.person_name(channel, id), name_of(execute, channel, id)


def words_for(execute: Execute, caller: Caller, conversation: str, thread: str, person: str, words: str) -> str:
    """Return words of a thread, such as its title, for this reader: "" in the direct chat of another person."""
    if not words or caller.is_person(Thread.parse(thread).channel, person) or inbox.is_shared(execute, conversation):
        return words
    return ""


def read_turns(
    execute: Execute, caller: Caller, store: Database, live: Sequence[tuple[RunningTurn, Mapping[str, Any]]]
) -> TurnList:
    """Return the turns in progress here (`live`) and at other processes, with what `fawn top` says of each."""
    turns = turns_in_progress(execute, store, [turn for turn, _shown in live])
    found = []
    for turn, shown in live:
        row = conversations.find_conversation(execute, turn.job.conversation)
        person, name = name_person(execute, turn.job.thread.channel, turn.job.requester)
        place = turn.job.conversation, f"{turn.job.thread}", turn.job.requester
        title = words_for(execute, caller, *place, row.title if row else "")
        numbers = {key: shown[key] for key in ("steps", "calls", "tokens")}
        found.append(
            TurnAnswer(
                turn.job.run,
                str(turn.job.thread),
                title,
                *(person, name, turn.job.attempt, turn.job.agent, turn.job.started),
                words_for(execute, caller, *place, shown["doing"]),
                **numbers,
                host=turns.host,
                replica=turns.replica,
                here=True,
            )
        )
    found += [_turn_elsewhere(execute, caller, turn) for turn in turns.elsewhere]
    return TurnList(sorted(found, key=lambda each: each.started))


def _turn_elsewhere(execute: Execute, caller: Caller, turn: TurnElsewhere) -> TurnAnswer:
    title, doing = (
        words_for(execute, caller, turn.conversation, turn.thread, turn.requester, words)
        for words in (turn.title, describe_elsewhere(turn)["doing"])
    )
    person, name = name_person(execute, Thread.parse(turn.thread).channel, turn.requester)
    return TurnAnswer(
        *(turn.run, turn.thread, title, person, name, turn.attempt, turn.agent, turn.started),
        *(doing, turn.steps, turn.calls, turn.tokens, turn.host, turn.replica, False),
    )


def read_queue(
    execute: Execute, caller: Caller, after: tuple[float, str], now: float, *, full: bool
) -> tuple[list[QueuedAnswer], str | None]:
    """Return the conversations that wait, and the cursor of those behind them."""
    rows = conversations.list_unclaimed(execute, after, PAGE + 1)
    more = make_cursor(rows[PAGE - 1].ready, rows[PAGE - 1].key) if len(rows) > PAGE else None
    return [_queued(execute, caller, row, now, full=full) for row in rows[:PAGE]], more


def _queued(execute: Execute, caller: Caller, row: WaitingRow, now: float, *, full: bool) -> QueuedAnswer:
    channel, _colon, id = row.person.partition(":")
    person, name = name_person(execute, channel, id)
    why = "gathers" if row.ready > now else "all_busy" if full else "next"
    title = words_for(execute, caller, row.key, row.thread, id, row.title)
    return QueuedAnswer(row.thread, title, person, name, row.pending, row.ready, why)


def read_dead(execute: Execute, after: str) -> DeadList:
    """Return dead letters behind one."""
    rows = outbox.list_dead(execute, after, PAGE + 1)
    shown = [DeadAnswer(row.id, row.kind or "event", row.thread, row.created, row.error) for row in rows[:PAGE]]
    return DeadList(shown, make_cursor(shown[-1].id) if len(rows) > PAGE else None)


def read_audit(execute: Execute, door: Door, caller: Caller, kind: str, wanted: str, before: int) -> AuditList:
    """Return the newest events of the places of which the caller may read the audit, as `/audit` does, and of their
    own threads over HTTP."""
    home, id = caller.home(execute)
    places = readable_places(execute, door.current.access, home, id)
    if places is not None:
        places |= audit.find_aliases(execute, str(caller.chat).removesuffix("/"))
    channel, _colon, person = wanted.partition(":")
    aliases = aliases_of(execute, channel, person) if wanted else set()
    if wanted and not aliases:
        return AuditList([], None)
    page = newest_events(execute, places, PAGE, kind=kind, person=aliases, before=before)
    named = {str(event[field]) for _seq, event in page.events for field in audit.NAMED_FIELDS if field in event}
    names = audit.find_names(execute, named)
    shown = [_audited(execute, seq, event, names) for seq, event in page.events]
    return AuditList(shown, make_cursor(page.next) if page.next is not None else None)


def _audited(execute: Execute, seq: int, event: Mapping[str, Any], names: Mapping[str, str]) -> AuditAnswer:
    who, subject, where = (names.get(event.get(field, ""), event.get(field, "")) for field in audit.NAMED_FIELDS)
    channel, colon, id = who.partition(":")
    name = name_person(execute, channel, id)[1] if colon else ""
    return AuditAnswer(
        *(seq, event["at"] / 1000, event["kind"], who, name, subject, where),
        *(event.get("run"), event.get("what", {}), event.get("result", ""), event.get("cost", 0)),
    )


def read_feedback(execute: Execute, caller: Caller, before: tuple[float, int, str], now: float) -> FeedbackList:
    """Return the thumbs before one, the newest first."""
    rows = outcomes.list_feedback(execute, before, PAGE + 1)
    shown = []
    for row in rows[:PAGE]:
        channel = Thread.parse(row.thread).channel if row.thread else ""
        person = name_person(execute, channel, row.person)[0] if channel else ""
        value = "up" if row.value > 0 else "down"
        title = words_for(execute, caller, row.conversation, row.thread, row.person, row.title) if row.thread else ""
        shown.append(FeedbackAnswer(row.run, row.thread, title, person, row.name, value, row.at))
    last = rows[PAGE - 1] if len(rows) > PAGE else None
    counts = outcomes.count_feedback(execute, now - FEEDBACK_DAYS * DAY_SECONDS)
    more = make_cursor(last.at, last.run, last.person) if last else None
    return FeedbackList(shown, Thumbs(counts.up, counts.down), more)


def read_usage(
    execute: Execute, by: str, days: int, now: float, zone: ZoneInfo | None, *, scope: str = "everything", key: str = ""
) -> UsageList:
    """Return what a scope has cost in these days, with today, by person, chat, model or day."""
    since = begin_of(days, now, zone)
    total = _usage(usage.spent(execute, scope, key, since), "", "")
    if by == "day":
        spent = by_day(usage.spent_by_time(execute, scope, key, since), zone)
        rows = [_usage(each, f"{day}", "") for day, each in sorted(spent.items())]
    else:
        found = usage.spent_by(execute, by, scope, key, since, PAGE)
        rows = [_usage(each, each.name, _usage_name(execute, by, each.name)) for each in found]
    return UsageList(by, since, total, rows)


def read_all_usage(execute: Execute, days: int, now: float, zone: ZoneInfo | None) -> dict[str, list[UsageAnswer]]:
    """Return what everybody has cost in these days, with today, by person, chat, model and day, and in all (""). Reads
    each row of them: it takes seconds where they are a million."""
    since = begin_of(days, now, zone)
    spent = usage.spent_by_each(execute, since, PAGE)
    found = {
        by: [_usage(each, each.name, _usage_name(execute, by, each.name)) for each in rows]
        for by, rows in spent.items()
    }
    daily = by_day(usage.spent_by_time(execute, "everything", "", since), zone) if days > 1 else {}
    return found | {"day": [_usage(each, f"{day}", "") for day, each in sorted(daily.items())]}


def begin_of(days: int, now: float, zone: ZoneInfo | None) -> float:
    """Return when the first of these days began, with today."""
    today = datetime.fromtimestamp(now, zone).replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    return (today - timedelta(days=days - 1)).timestamp()


def _usage(spent: Spending, key: str, name: str) -> UsageAnswer:
    return UsageAnswer(key, name, spent.cost, spent.tokens, spent.calls, spent.unpriced)


def _usage_name(execute: Execute, by: str, key: str) -> str:
    channel, _colon, id = key.partition(":")
    return name_person(execute, channel, id)[1] if by == "person" else ""


def read_schedules(execute: Execute, caller: Caller, after: int) -> ScheduleList:
    """Return the schedules of everybody behind a number."""
    rows = schedules.list_everybodys(execute, after, PAGE + 1)
    shown = [schedule_answer(execute, row, caller) for row in rows[:PAGE]]
    return ScheduleList(shown, make_cursor(shown[-1].id) if len(rows) > PAGE else None)


def schedule_answer(execute: Execute, row: ScheduleRow, caller: Caller) -> ScheduleAnswer:
    """Return a schedule, with the latest time that it ran."""
    last = next(iter(schedules.list_fires(execute, row.id, 1)), None)
    fired = None
    if last:
        cost = usage.spent(execute, "turn", str(last.run), 0.0).cost if last.run else 0
        fired = FireAnswer(last.due, last.at, last.state or last.result, last.run, cost)
    person, name = name_person(execute, row.channel, row.owner)
    what = row.what if not row.private or caller.is_person(row.channel, row.owner) else ""
    return ScheduleAnswer(
        *(row.id, row.kind, row.state, what, row.form, row.expression, row.zone, row.thread, person, name),
        *(row.next_at, schedules.is_busy(execute, row), fired),
    )


def read_tasks(execute: Execute, caller: Caller, before: int) -> TaskList:
    """Return the background tasks of everybody, the newest first, before a number."""
    rows = tasks.list_everybodys(execute, before, PAGE + 1)
    shown = [task_answer(execute, row, caller) for row in rows[:PAGE]]
    return TaskList(shown, make_cursor(shown[-1].id) if len(rows) > PAGE else None)


def task_answer(execute: Execute, row: TaskRow, caller: Caller) -> TaskAnswer:
    """Return a background task, and what its latest run has cost."""
    person, name = name_person(execute, row.channel, row.person)
    title = row.title if not row.private or caller.is_person(row.channel, row.person) else ""
    cost = usage.spent(execute, "turn", str(row.run), 0.0).cost if row.run else 0
    return TaskAnswer(
        *(row.id, row.kind, row.shown, title, row.thread, person, name),
        *(row.created, row.started, row.until, row.run, cost),
    )
