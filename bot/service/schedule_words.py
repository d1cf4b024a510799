"""Describe schedules to people: the times in words, the next fires, what happens; and ask whether one is right."""

from __future__ import annotations

import calendar
from datetime import datetime
from itertools import islice

from agent.blocks import Ask
from agent.permissions.invisible import show_line, show_literally
from agent.schedules import MissedRule, ScheduleKind, Timing, TimingForm
from bot.base.plain_text import without_formatting
from bot.base.times import WEEKDAYS, local_time, times_after
from bot.database.database import Execute
from bot.storage import languages, outbox
from bot.storage.schedules import ScheduleRow
from catalogue import N_, _, current_language, format_duration, join_sentences, list_items
from channels.shared.texts import shorten

YES, NO = N_("Yes"), N_("No")
OPTIONS = (YES, NO)
PREFIX = "schedule:"  # of the question's id, before the number of the proposal, or VERB-NUMBER
SHOWN_FIRES = 3
MAX_LINE_CHARS = 80  # of what to do, in a list
DESCRIPTOR_LOCALES = {"en": "en_US", "zh": "zh_CN"}
MONTHS = (
    N_("January"),
    N_("February"),
    N_("March"),
    N_("April"),
    N_("May"),
    N_("June"),
    N_("July"),
    N_("August"),
    N_("September"),
    N_("October"),
    N_("November"),
    N_("December"),
)
QUESTIONS = {
    ScheduleKind.WORK: N_("Shall I do this at set times?"),
    ScheduleKind.REMINDER: N_("Shall I remind you?"),
    ScheduleKind.WATCH: N_("Shall I watch this page, and work when it changes?"),
}
KIND_NAMES = {ScheduleKind.WORK: N_("work"), ScheduleKind.REMINDER: N_("reminder"), ScheduleKind.WATCH: N_("watch")}
MISSED_RULES = {
    MissedRule.SKIP: N_("Times at which I don't run are skipped."),
    MissedRule.ONCE: N_("If I don't run at such a time, I make up for the latest one soon after."),
    MissedRule.ALL: N_("If I don't run at such a time, I make up for every one."),
}

STATES = {
    "proposed": N_("waits for a yes"),
    "active": N_("active"),
    "paused": N_("paused"),
    "ended": N_("ended"),
}


def describe_timing(timing: Timing) -> str:
    """Return when a schedule fires, such as "At 09:00, Monday through Friday (Europe/Berlin)". Raises TimingError."""
    match timing.form:
        case TimingForm.AT:
            return _("once, {time}", time=format_times(timing, [float(timing.expression)]))
        case TimingForm.EVERY:
            return _("every {time}", time=format_duration(float(timing.expression)))
        case _cron:
            return _("{times} ({zone})", times=_describe_cron(timing.expression), zone=timing.zone)


def _describe_cron(expression: str) -> str:
    from cron_descriptor import (  # type: ignore[import-untyped]  # it has no stubs; imported when it is needed
        FormatException,
        Options,
        get_description,
    )

    options = Options()
    options.locale_code = DESCRIPTOR_LOCALES[current_language()]
    options.use_24hour_time_format = True
    try:
        text = str(get_description(expression, options))
    except FormatException:  # cronsim knows some expressions that it does not
        return show_line(expression)
    for own, names in ((calendar.day_name, WEEKDAYS), (calendar.month_name[1:], MONTHS)):
        for there, here in zip(own, names, strict=True):  # its Chinese has English names of days
            text = text.replace(there, _(here))
    return text


def format_times(timing: Timing, times: list[float]) -> str:
    """Return times in the zone of a schedule, with the days of the week. Raises TimingError."""
    return list_items(_format_moment(local_time(at, timing.zone)) for at in times)


def _format_moment(moment: datetime) -> str:
    return _("{day} {time}", day=_(WEEKDAYS[moment.weekday()]), time=f"{moment:%Y-%m-%d %H:%M}")


def describe_next(timing: Timing, now: float) -> str:
    """Return the next fires; "" if there are none. Raises TimingError."""
    times = list(islice(times_after(timing, now), SHOWN_FIRES))
    return _("Next: {times}.", times=format_times(timing, times)) if times else ""


def confirmation_text(row: ScheduleRow, now: float) -> str:
    """Return the question whether a schedule is right. Raises TimingError."""
    lines = [
        _(
            "⏰ {question} (number {number})",
            question=_(QUESTIONS[ScheduleKind(row.kind)]),
            number=row.changes or row.id,
        ),
        show_literally(row.what),  # the whole text, because it is what is confirmed
    ]
    if row.url:
        lines.append(_("Page: {url}", url=show_line(row.url)))
    missed = _(MISSED_RULES[MissedRule(row.missed)])
    lines.append(_("When: {times}.", times=describe_timing(row.timing)))
    lines.append(join_sentences(describe_next(row.timing, now), missed))
    return "\n\n".join(lines)


def ask_owner(execute: Execute, row: ScheduleRow, now: float, *, key: str, why: str = "") -> None:
    """Enqueue the question whether a proposal is right, and `why` it comes, in the owner's language.

    Raises TimingError.
    """
    with languages.speak_to(execute, row.place, row.who.person):
        text = "\n\n".join(filter(None, (_(why) if why else "", confirmation_text(row, now))))
        ask = Ask(f"{PREFIX}{row.id}", text, tuple(map(_, OPTIONS)), free_text=False)
        mention = row.owner if why else ""
        outbox.enqueue_notice(execute, row.thread, text, key=key, now=now, mention=mention, asks=(ask,))


def describe_line(row: ScheduleRow, *, with_owner: bool) -> str:
    """Return one line of a list. Raises TimingError."""
    what = shorten(without_formatting(row.what), MAX_LINE_CHARS)
    values = {
        "number": row.id,
        "what": what,
        "kind": _(KIND_NAMES[ScheduleKind(row.kind)]),
        "state": _(STATES[row.state]),
    }
    values["times"] = describe_timing(row.timing)
    if with_owner:
        return _("- {number}: {what} ({kind} of {name}, {times}, {state})", name=row.name or row.owner, **values)
    return _("- {number}: {what} ({kind}, {times}, {state})", **values)
