"""Fire schedules that are due: in one transaction, store what follows and move the next time.

A fire of `work` is a message of the schedule's owner, in a conversation of the schedule's own: the run that answers it
has the owner's rights of that moment. Its key contains the time, so that each time fires once, whoever looks.

The clock of the schedules: it looks when the next one is due, and when one has changed.

The rows are the truth (`bot/storage/schedules.py`). APScheduler only keeps the time of the next look.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from agent.blocks import command_hint
from agent.late_imports import import_in_thread
from agent.messages import Message, Origin, Quote
from agent.schedules import MissedRule, ScheduleKind
from bot.base.background import run_forever
from bot.base.plain_text import without_formatting
from bot.base.side_work import name_side_work, record_post
from bot.base.times import TimingError, local_time, next_time, times_until
from bot.config.team import Right
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Database, Execute
from bot.database.states import FireResult, ScheduleState
from bot.database.wake_ups import Written
from bot.journey import questions
from bot.rights.access import AccessPolicy
from bot.rights.budgets import Limit, record_used_up
from bot.rights.current import Current
from bot.service.schedule_changes import MAX_TITLE_CHARS, record_change, short_words, withdraw_fire
from bot.service.schedule_words import format_times
from bot.service.task_rows import add_fire
from bot.storage import conversations, inbox, languages, outbox, schedules
from bot.storage.jobs import enqueue_job
from bot.storage.schedules import ScheduleRow
from catalogue import N_
from channels.shared.texts import shorten

if TYPE_CHECKING:
    from apscheduler.job import Job  # type: ignore[import-untyped]  # it has no stubs


log = logging.getLogger(__name__)

WATCH_JOB = "watch"
BATCH = 100  # schedules fired in one transaction
ON_TIME_SECONDS = 60.0  # a fire that is later was missed
MAX_MADE_UP = 24  # missed times of a schedule that makes up for all
NO_ACCESS = N_(
    "⏸ I paused schedule {number} (“{what}”): {name} may no longer write to me here. An operator can give them access;"
    " `{command}` then continues."
)
BROKEN = N_("⏸ I paused schedule {number} (“{what}”): its times can't be computed any more ({reason}).")
NO_BUDGET = N_("⏸ Schedule {number} (“{what}”) skips its times for now. {why}")
MISSED = N_("⏰ I missed schedule {number} (“{what}”), which was due {time}: I was not running then.")


def fire_due(
    execute: Execute, access: AccessPolicy, now: float, grace_seconds: float, *, at_start: bool = False
) -> float | None:
    """Fire every schedule that is due, up to a limit; return when the next one is.

    `at_start`, the next times of all of them are checked.
    """
    _restore_times(execute, now, everything=at_start)
    for row in schedules.due_schedules(execute, now, BATCH):
        try:
            with languages.speak_to(execute, row.place, row.who.person):
                _fire_in_time(execute, access, row, now, grace_seconds)
        except (TimingError, ValueError) as error:  # it must not block the others
            log.error("schedule.broken id=%d reason=%s", row.id, error)  # noqa: TRY400 — the reason is enough
            pause_and_say(execute, access, row, short_words(row, BROKEN, reason=str(error)), now)
    return schedules.earliest_fire(execute, now)


def _restore_times(execute: Execute, now: float, *, everything: bool) -> None:
    """Recompute next times that were computed while the clock was ahead: they may be far away.

    A right next time is the first one after now, whenever it was computed.
    """
    for row in schedules.schedules_after(execute, now + ON_TIME_SECONDS, everything=everything):
        timing = row.timing
        if timing.since > now + ON_TIME_SECONDS:
            schedules.begin_counting(execute, row.id, now)
            timing = replace(timing, since=now)
        with contextlib.suppress(TimingError):  # it is paused when it is due
            at = next_time(timing, now)
            if at is not None and row.next_at is not None and at < row.next_at:
                schedules.move_next(execute, row, at)


def _fire_in_time(execute: Execute, access: AccessPolicy, row: ScheduleRow, now: float, grace_seconds: float) -> None:
    """Fire a schedule, by its rule about missed times, and move its next time."""
    timing, due, after = row.timing, row.next_at or now, now
    is_made_up = True
    if now - due > ON_TIME_SECONDS:
        latest = list(islice(times_until(timing, now), MAX_MADE_UP))
        if row.missed == MissedRule.ALL:
            due = after = max(due, latest[-1]) if latest else due
        else:
            due = max(due, latest[0]) if latest else due
            is_made_up = now - due <= (grace_seconds if row.missed == MissedRule.ONCE else ON_TIME_SECONDS)
    elif row.missed == MissedRule.ALL:
        after = due
    schedules.move_next(execute, row, next_time(timing, after))
    if is_made_up:
        fire(execute, access, row, due, now)
    elif schedules.worked_until(execute, row.id) > due:  # nobody waits for a time that its own work skipped
        schedules.record_fire(execute, row.id, due, now, FireResult.BUSY)
    elif schedules.record_fire(execute, row.id, due, now, FireResult.MISSED):
        words = short_words(row, MISSED, time=format_times(timing, [due]))
        _say(execute, row, words, f"sched:{row.id}:missed:{due:.0f}", now)


def fire(execute: Execute, access: AccessPolicy, row: ScheduleRow, due: float, now: float) -> bool:
    """Fire a schedule for one time, once; return whether it fired, else it was said why not.

    Without access of its owner, it is paused. Speaks the current language.
    """
    message = make_message(row, due, now)
    if not (access.may_enter(execute, message) and access.may(execute, message.thread, row.owner, Right.SCHEDULE)):
        command = command_hint(f"schedule resume {row.id}")
        words = short_words(row, NO_ACCESS, name=row.name or row.owner, command=command)
        pause_and_say(execute, access, row, words, now)
        return False
    costs = row.kind != ScheduleKind.REMINDER
    if costs and (used_up := access.budgets.find_used_up(execute, row.place, row.owner, now)):
        if schedules.record_fire(execute, row.id, due, now, FireResult.NO_BUDGET):
            record_used_up(execute, used_up, row.place, row.owner, "schedule")
            _say_used_up(execute, access, row, used_up, now)
        return False
    result = {ScheduleKind.REMINDER: FireResult.SENT, ScheduleKind.WATCH: FireResult.CHECKING}
    kind = ScheduleKind(row.kind)
    if not schedules.record_fire(execute, row.id, due, now, result.get(kind, FireResult.RUN)):
        return True
    what: dict[str, int | str] = {"schedule": row.id, "kind": row.kind, "due": round(due)}
    audit.record(execute, AuditEvent(AuditKind.SCHEDULE_FIRED, row.place, row.owner, what=what))
    log.info("schedule.fired id=%d kind=%s late=%.1f", row.id, kind, now - due)
    match kind:
        case ScheduleKind.REMINDER:
            _say(execute, row, f"⏰ {row.what}", f"sched:{row.id}:{due:.3f}", now)
        case ScheduleKind.WATCH:
            enqueue_check(execute, row, due)
        case ScheduleKind.WORK:
            begin_run(execute, row, due, now)
    return True


def _say_used_up(execute: Execute, access: AccessPolicy, row: ScheduleRow, limit: Limit, now: float) -> None:
    """Say once in a period of the budget that the schedule skips its times."""
    words = short_words(row, NO_BUDGET, why=access.budgets.describe_used_up(limit))
    _say(execute, row, words, f"sched:{row.id}:budget:{limit.key.scope}:{limit.key.period}", now)


def enqueue_check(execute: Execute, row: ScheduleRow, due: float) -> None:
    """Have a worker look at the watched page."""
    enqueue_job(execute, key=row.watch_job, kind=WATCH_JOB, payload={"schedule": row.id, "due": due})


def begin_run(execute: Execute, row: ScheduleRow, due: float, now: float, quotes: tuple[Quote, ...] = ()) -> None:
    """Store the message that a run of the schedule answers. What the last run still waits for is closed.

    Its owner confirmed the times, so only what follows from it counts against the allowance of work without a person.
    """
    message = make_message(row, due, now, quotes)
    title = shorten(without_formatting(row.what), MAX_TITLE_CHARS)
    conversations.place_conversation(execute, row.conversation, row.place, title, now)
    questions.close_open_questions(execute, row.conversation, now)
    stored = inbox.store_message(execute, message, row.conversation, ready=now, received=now)
    schedules.set_fire_result(execute, row.id, due, FireResult.RUN, stored)
    add_fire(execute, row, message, stored, now)
    conversations.refresh_pending(execute, row.conversation)


def make_message(row: ScheduleRow, due: float, now: float, quotes: tuple[Quote, ...] = ()) -> Message:
    """Return the message of a fire: the owner's, at the address where the schedule posts."""
    who = row.who
    when = f"{local_time(due, row.zone):%Y-%m-%d %H:%M} {row.zone}"
    text = f"{row.what}\n\n[Schedule {row.id}, due {when}]"
    key = f"sched:{row.id}:{due:.3f}"
    return Message(
        who.thread, key, "", who.person, text, now, private=who.private, quotes=quotes, origin=Origin.SCHEDULE
    )


def pause_and_say(execute: Execute, access: AccessPolicy, row: ScheduleRow, words: str, now: float) -> None:
    """Pause a schedule, and say so where it posts and to the operators."""
    schedules.set_schedule_state(execute, row.id, ScheduleState.PAUSED)
    withdraw_fire(execute, row)
    record_change(execute, row, "pause")
    key = f"sched:{row.id}:paused:{math.floor(now)}"
    _say(execute, row, words, key, now)
    for person in access.reachable_operators(execute, console=False):
        if (chat := person.private_chat) and chat != row.place.without_topic:
            outbox.enqueue_notice(execute, chat, words, key=f"{key}:{person.person}", now=now)


def _say(execute: Execute, row: ScheduleRow, words: str, key: str, now: float) -> None:
    """Post a text where the schedule posts, and mention its owner."""
    outbox.enqueue_notice(execute, row.thread, words, key=key, now=now, mention=row.owner)
    work = name_side_work(f"schedule:{row.id}", row.what)
    record_post(execute, row.place, row.conversation, work, row.owner, words, key, now)


LOOK_SECONDS = 30.0  # between looks without a wake-up; a clock that was set, and a busy schedule, are noticed then


class ScheduleClock:
    """Fires schedules."""

    def __init__(self, store: Database, current: Current) -> None:
        self._store = store
        self._current = current
        self._wake = store.listen(Written.SCHEDULE)
        self._is_first_look = True

    async def serve(self) -> None:
        """Fire until cancelled."""
        logging.getLogger("apscheduler").setLevel(logging.WARNING)  # it logs every look
        module = await import_in_thread("apscheduler.schedulers.asyncio")
        clock = module.AsyncIOScheduler(timezone=UTC)
        clock.start()
        job = clock.add_job(self._tick, "interval", seconds=LOOK_SECONDS, coalesce=True, misfire_grace_time=None)
        try:
            await run_forever("schedules", partial(self._look, job))
        finally:
            clock.shutdown(wait=False)

    async def _tick(self) -> None:
        self._wake.set()

    async def _look(self, job: Job) -> None:
        self._wake.clear()
        now = time.time()
        grace = self._current.config.schedules.grace_minutes * 60
        first = self._is_first_look
        look = partial(fire_due, access=self._current.access, now=now, grace_seconds=grace, at_start=first)
        next_at = await self._store.run(look)
        self._is_first_look = False
        if next_at is not None and next_at < now + LOOK_SECONDS:
            job.modify(next_run_time=datetime.fromtimestamp(max(next_at, now), UTC))
        await self._wake.wait()
