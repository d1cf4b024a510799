"""Propose schedules, and do what their owner decides. A schedule fires only after its owner has confirmed it.

A press on a button does what `/schedule confirm NUMBER` does, so that one place says what happened.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from agent.blocks import Ask
from agent.messages import Message, Requester, Thread
from agent.permissions.rules import Subject, ToolUse, judge
from agent.schedules import MissedRule, ScheduleKind, ScheduleRequest, TimingForm
from bot.base.times import TimingError, find_zone, has_offset, next_time, parse_timing, shortest_interval
from bot.commands.table import Pressed
from bot.commands.waits import Waiting
from bot.config.schema import Config
from bot.config.team import Right
from bot.database.database import Execute
from bot.database.rows import parse_row_id, requester_columns
from bot.database.states import ScheduleState
from bot.rights.current import Current
from bot.rights.permissions import rules_in_force
from bot.service.schedule_changes import short_words
from bot.service.schedule_words import OPTIONS, PREFIX, ask_owner, confirmation_text
from bot.storage import languages, outbox, people, schedules
from bot.storage.schedules import ScheduleRow
from catalogue import N_, _
from channels.base import Receipt

MAX_WHAT_CHARS = 1500  # which the question shows as a whole
NO_ZONE = "UTC"
CHANGES = {  # what the agent asks the owner
    "pause": N_("I would pause schedule {number}, “{what}”. Shall I?"),
    "delete": N_("I would delete schedule {number}, “{what}”. Shall I?"),
}


class ProposalRefused(Exception):
    """A schedule that cannot be; the message is for the model."""


def propose_schedule(
    execute: Execute, current: Current, who: Requester, request: ScheduleRequest, now: float
) -> ScheduleRow:
    """Store a new or changed schedule as a proposal, and ask its owner. Raises ProposalRefused."""
    channel, config = who.thread.channel, current.config
    if not current.access.may(execute, who.thread, who.person.id, Right.SCHEDULE):
        raise ProposalRefused("the person's role does not allow schedules here. An operator can change their role.")
    old = find_own(execute, who, request.number) if request.number else None
    if not old and schedules.count_schedules(execute, channel, who.person.id) >= config.schedules.per_person:
        raise ProposalRefused(
            f"the person has {config.schedules.per_person} schedules already, which is the limit. They can delete one."
        )
    try:
        values = _new_values(execute, current, who, request, old, now)
        number = schedules.add_schedule(execute, values)
        row = schedules.find_schedule(execute, number)
        assert row is not None  # noqa: S101 — stored in this transaction
        ask_owner(execute, row, now, key=f"sched:{row.id}:ask")
    except TimingError as error:
        raise ProposalRefused(f"{error}.") from error
    return row


def find_own(execute: Execute, who: Requester, number: int) -> ScheduleRow:
    """Return a schedule of a person. Raises ProposalRefused."""
    row = schedules.find_schedule(execute, number)
    if row is None or (row.channel, row.owner) != (who.thread.channel, who.person.id):
        raise ProposalRefused(f"{who.person.name or 'the person'} has no schedule {number}.")
    return row


def _new_values(
    execute: Execute, current: Current, who: Requester, request: ScheduleRequest, old: ScheduleRow | None, now: float
) -> dict[str, object]:
    """Return the columns of a proposal. Raises ProposalRefused and TimingError."""
    config = current.config
    kind = request.kind or (old.kind if old else ScheduleKind.WORK)
    what = request.what.strip() or (old.what if old else "")
    url = (request.url.strip() or (old.url if old else "")) if kind == ScheduleKind.WATCH else ""
    if not what or len(what) > MAX_WHAT_CHARS:
        raise ProposalRefused(f"`what` must have 1 to {MAX_WHAT_CHARS} characters.")
    if kind == ScheduleKind.WATCH and not may_read_page(execute, current, who.thread, who.person.id, url):
        raise ProposalRefused("a watch needs the `url` of a page that web_fetch may read.")
    if old and not (request.cron or request.at or request.every_minutes):
        timing = replace(old.timing, zone=request.time_zone or old.zone)
    else:
        zone = _choose_zone(execute, config, who, request, old)
        timing = parse_timing(request, zone, now)
    least = config.schedules.least_minutes * 60
    if shortest_interval(timing, now) < least:
        raise ProposalRefused(f"the shortest interval of a schedule is {least / 60:g} minutes.")
    return {
        **requester_columns(replace(who, thread=old.place) if old else who, "owner"),
        "kind": kind,
        "what": what,
        "url": url,
        "form": timing.form,
        "expression": timing.expression,
        "zone": timing.zone,
        "since": now,
        "missed": request.missed or (old.missed if old else MissedRule.ONCE),
        "state": ScheduleState.PROPOSED,
        "next_at": None,
        "changes": old.id if old else 0,
        "created": now,
    }


def _choose_zone(
    execute: Execute, config: Config, who: Requester, request: ScheduleRequest, old: ScheduleRow | None
) -> str:
    """Return the zone that was named, the schedule's, the person's, or the configured one; never the machine's."""
    known = people.zone_of(execute, who.thread.channel, who.person.id)
    zone = request.time_zone.strip() or (old.zone if old else "") or known or config.time_zone
    if zone:
        find_zone(zone)
    elif request.cron or (request.at and not has_offset(request.at)):
        raise ProposalRefused("the person's time zone is unknown. Ask for it, then give it as `time_zone`.")
    return zone or NO_ZONE


def may_read_page(execute: Execute, current: Current, place: Thread, person: str, url: str) -> bool:
    """Return whether the rules let the agent read a page for this person without a question."""
    role, config = current.access.role_of(execute, place, person), current.config
    use = ToolUse("web_fetch", {"url": url}, Subject("url"), "allow")
    is_allowed = judge((*rules_in_force(config), *role.rules()), use).verdict == "allow"
    return config.web.fetch and bool(url) and Right.NETWORK in role.rights and is_allowed


def ask_to_change(execute: Execute, row: ScheduleRow, verb: str, run: int, now: float) -> None:
    """Enqueue the question whether a schedule is to be paused or deleted, where it posts, in the owner's language."""
    with languages.speak_to(execute, row.place, row.who.person):
        text = short_words(row, CHANGES[verb])
        ask = Ask(f"{PREFIX}{verb}-{row.id}", text, tuple(map(_, OPTIONS)), free_text=False)
        key = f"sched:{row.id}:{verb}:{run}"
        outbox.enqueue_notice(execute, row.thread, text, key=key, now=now, mention=row.owner, asks=(ask,))


def waiting_proposals(execute: Execute, _current: Current, viewer: Message, _now: float) -> Iterator[Waiting]:
    """Yield the proposals that wait for the author of a message."""
    for row in schedules.list_unended(execute, viewer.thread.channel, viewer.author.id):
        if row.state == ScheduleState.PROPOSED:
            yield Waiting(
                row.place, f"{PREFIX}{row.id}", confirmation_text(row, row.created), OPTIONS, since=row.created
            )


# ------------------------------------------------------------ the decision


DECIDABLE = {
    "": (ScheduleState.PROPOSED,),
    "pause": (ScheduleState.ACTIVE,),
    "delete": (ScheduleState.PROPOSED, ScheduleState.ACTIVE, ScheduleState.PAUSED),
}


def check_press(execute: Execute, pressed: Pressed) -> Receipt | None:
    """Return the receipt of a press without effect; None for one of the owner in time."""
    change, number = split_subject(pressed.subject)
    row = schedules.find_schedule(execute, number) if number is not None else None
    if row is None or row.state not in DECIDABLE.get(change, ()):
        return Receipt.DUPLICATE
    click = pressed.click
    return None if (row.channel, row.owner) == (click.thread.channel, click.author.id) else Receipt.IGNORED


def split_subject(subject: str) -> tuple[str, int | None]:
    """Return the change that the owner was asked for, "" for a proposal, and the number of the schedule."""
    change, _dash, number = subject.rpartition("-")
    return change, parse_row_id(number)


def confirm(execute: Execute, row: ScheduleRow, now: float) -> ScheduleRow | None:
    """Activate a proposal, or apply the change; return the schedule, None if its time has passed meanwhile.

    `every` counts from now. The zone that its owner confirmed becomes theirs, if none is known. UTC does not: it also
    stands for an unknown zone, of a time that needs none, such as "in an hour".
    """
    schedules.begin_counting(execute, row.id, now)
    timing = replace(row.timing, since=now)
    at = next_time(timing, now)
    if at is None:
        return None
    if timing.form != TimingForm.EVERY and row.zone != NO_ZONE and not people.zone_of(execute, row.channel, row.owner):
        people.set_zone(execute, row.channel, row.owner, row.name, row.zone)
    if row.changes:
        schedules.apply_change(execute, row)
    number = row.changes or row.id
    schedules.set_schedule_state(execute, number, ScheduleState.ACTIVE, at)
    return schedules.find_schedule(execute, number)
