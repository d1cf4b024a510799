"""`/schedule` and `/zone`: show, confirm, pause, resume, run and delete schedules; the time zone of a person."""

from __future__ import annotations

from dataclasses import replace

from agent.blocks import command_hint
from agent.messages import Kind
from agent.schedules import ScheduleKind
from bot.base.times import TimingError, find_zone, local_time, suggest_zones
from bot.commands import background
from bot.commands.call import CommandCall
from bot.commands.table import Pressed
from bot.commands.work import busy_answer
from bot.database.rows import parse_row_id
from bot.database.states import FireResult, ScheduleState
from bot.journey import questions
from bot.rights import deeds
from bot.schedules import proposals
from bot.schedules.firing import enqueue_check, fire
from bot.service.schedule_changes import record_change
from bot.service.schedule_words import OPTIONS, YES, describe_line, describe_next, format_times
from bot.storage import conversations, inbox, languages, people, runs, schedules
from bot.storage.schedules import ScheduleRow
from catalogue import N_, _, join_sentences, list_items

SCHEDULE_WORDS = "REQUEST | pause N | resume N | run N | here N | delete N | history N"
MAX_FIRES = 10  # in the history
DISABLED = N_("Schedules are disabled here. Whoever runs me can enable them in the configuration.")
ASKED = "Use the tool `schedule` for this request: {words}"  # for the agent
NOT_YOURS = N_("Only the person whose schedule it is, or an operator, can change it.")
RESULTS = {
    "run": N_("it waits to begin"),
    "queued": N_("it waits to begin"),
    "running": N_("I'm working on it"),
    "done": N_("done"),
    "waiting": N_("it waits for an answer"),
    "stopped": N_("stopped"),
    "failed": N_("failed"),
    FireResult.SENT: N_("posted"),
    FireResult.CHECKING: N_("I'm reading the page"),
    FireResult.UNCHANGED: N_("the page had not changed"),
    FireResult.UNREADABLE: N_("the page could not be read"),
    FireResult.MISSED: N_("missed"),
    FireResult.BUSY: N_("skipped: the time before it was still at work"),
    FireResult.NO_BUDGET: N_("skipped: the budget was used up"),
}


def asks_agent(words: str) -> bool:
    """Return whether these words are a request for the agent, and not about one of the schedules."""
    verb, _space, rest = words.partition(" ")
    is_known = verb.lower() in VERBS and rest.strip(" #").isdecimal()
    return bool(words) and words.lower() != "list" and not is_known


def begins_work(words: str) -> bool:
    """Return whether the agent works on these words: it counts as a message for the rate limits."""
    return asks_agent(words) or words.partition(" ")[0].lower() == "run"


def schedule_command(call: CommandCall) -> str:
    """Show or change schedules. Other words are a request for the agent."""
    if not call.current.config.schedules.per_person:
        return _(DISABLED)
    verb, _space, rest = call.words.partition(" ")
    number = rest.strip(" #")
    if not call.words or call.words.lower() == "list":
        return _show(call)
    if asks_agent(call.words):
        return _ask_agent(call)
    return _change(call, verb.lower(), number)


def answer_press(call: CommandCall, pressed: Pressed) -> str:
    """Do what the owner decided with a button."""
    if not call.may(deeds.PLAN_TIMES):
        return call.refuse("schedule", deeds.PLAN_TIMES)
    if not call.current.config.schedules.per_person:
        return _(DISABLED)
    change, number = proposals.split_subject(pressed.subject)
    yes, no = (change, "keep") if change else ("confirm", "decline")
    return _change(call, yes if OPTIONS[pressed.option] == YES else no, str(number))


def _change(call: CommandCall, verb: str, number: str) -> str:
    """Do what `verb` says with a schedule."""
    act = VERBS[verb]
    known = parse_row_id(number)
    row = schedules.find_schedule(call.execute, known) if known is not None else None
    if row is None or row.state == ScheduleState.ENDED or not _may_see(call, row):
        return _("I don't know a schedule {number} here.", number=number)
    if not (_is_owner(call, row) or (call.may(deeds.CHANGE_OTHERS_SCHEDULE) and verb not in OWNER_ONLY)):
        return _(NOT_YOURS)
    try:
        answer = act(call, row)
    except TimingError as error:
        return _("The times of schedule {number} can't be computed: {reason}.", number=number, reason=error)
    if act not in (_history, _keep):
        record_change(call.execute, row, verb, call.message.author.id)
    return answer


def _is_owner(call: CommandCall, row: ScheduleRow) -> bool:
    return (row.channel, row.owner) == (call.thread.channel, call.message.author.id)


def _may_see(call: CommandCall, row: ScheduleRow) -> bool:
    """Return whether this place may show a schedule: it posts in this chat, or its owner asks in private."""
    there, here = row.place, call.thread
    same = (there.channel, there.workspace, there.chat) == (here.channel, here.workspace, here.chat)
    return same or _is_owner(call, row)


def _show(call: CommandCall) -> str:
    if call.message.private:
        rows = schedules.list_owned(call.execute, call.thread.channel, call.message.author.id)
    else:
        rows = schedules.list_posting(call.execute, call.thread)
    hint = _(
        "`{request}` plans something, `{pause}` pauses, `{run}` runs at once, `{history}` shows the last times.",
        request=command_hint(_("schedule every weekday at 9 …")),
        pause=command_hint("schedule pause 1"),
        run=command_hint("schedule run 1"),
        history=command_hint("schedule history 1"),
    )
    if not rows:
        return join_sentences(_("There are no schedules here."), hint)
    lines = []
    for row in rows:
        lines.append(describe_line(row, with_owner=not call.message.private))
        if row.state == ScheduleState.ACTIVE and row.next_at is not None:
            lines[-1] += " " + _("Next: {times}.", times=format_times(row.timing, [row.next_at]))
    return "\n".join([_("Schedules:"), *lines, "", hint])


def _ask_agent(call: CommandCall) -> str:
    if busy := busy_answer(call, runs.latest_run(call.execute, call.conversation)):
        return busy
    message = call.message
    text = ASKED.format(words=call.words)
    request = replace(message, key=f"schedule:{message.key}", kind=Kind.CHAT, text=text, native=False)
    if message.native:
        request = replace(request, id="")  # there is no message to reply to
    inbox.store_message(call.execute, request, call.conversation, ready=call.now, received=call.now)
    conversations.refresh_pending(call.execute, call.conversation)
    return _("I'm on it.") if message.native else ""


def _confirm(call: CommandCall, row: ScheduleRow) -> str:
    if row.state != ScheduleState.PROPOSED:
        return _("Schedule {number} is confirmed already.", number=row.id)
    confirmed = proposals.confirm(call.execute, row, call.now)
    if confirmed is None:
        schedules.set_schedule_state(call.execute, row.id, ScheduleState.ENDED)
        return _("That time has passed meanwhile. Please ask me again.")
    if confirmed.kind == ScheduleKind.WATCH:  # the first look is what later ones are compared with
        enqueue_check(call.execute, confirmed, call.now)
    active = _("✓ Schedule {number} is active.", number=confirmed.id)
    return join_sentences(active, describe_next(confirmed.timing, call.now))


def _decline(call: CommandCall, row: ScheduleRow) -> str:
    if row.state != ScheduleState.PROPOSED:
        return _("Schedule {number} is confirmed already.", number=row.id)
    schedules.set_schedule_state(call.execute, row.id, ScheduleState.ENDED)
    return _("I dropped this proposal.")


def _pause(call: CommandCall, row: ScheduleRow) -> str:
    if row.state != ScheduleState.ACTIVE:
        return _("Schedule {number} is not active.", number=row.id)
    background.pause_schedule(call.execute, row)
    hint = command_hint(f"schedule resume {row.id}")
    return _("⏸ Schedule {number} is paused. `{command}` continues it.", number=row.id, command=hint)


def _resume(call: CommandCall, row: ScheduleRow) -> str:
    if row.state != ScheduleState.PAUSED:
        return _("Schedule {number} is not paused.", number=row.id)
    if not background.resume_schedule(call.execute, row, call.now):
        return _("Schedule {number} has no further time.", number=row.id)
    active = _("✓ Schedule {number} is active.", number=row.id)
    return join_sentences(active, describe_next(row.timing, call.now))


def _run(call: CommandCall, row: ScheduleRow) -> str:
    if row.state == ScheduleState.PROPOSED:
        return _("Schedule {number} waits for a yes of its owner.", number=row.id)
    if schedules.is_busy(call.execute, row):
        return _("I'm still working on it.")
    with languages.speak_to(call.execute, row.place, row.who.person):
        has_fired = fire(call.execute, call.current.access, row, call.now, call.now)
    if not has_fired and row.kind != ScheduleKind.REMINDER:
        return _("Schedule {number} did not run. It says why where it posts.", number=row.id)
    return _("Schedule {number} runs now.", number=row.id) if row.kind != ScheduleKind.REMINDER else ""


def _move_here(call: CommandCall, row: ScheduleRow) -> str:
    """Post here from now on: the owner writes here, so they may. What waits for an answer elsewhere is closed."""
    if str(call.thread) != row.thread:
        questions.close_open_questions(call.execute, row.conversation, call.now)
    schedules.move_place(call.execute, row, call.thread, private=call.message.private)
    return _("From now on, schedule {number} posts here.", number=row.id)


def _delete(call: CommandCall, row: ScheduleRow) -> str:
    by = call.message.author.id
    call.after.extend(background.delete_schedule(call.execute, row, by, call.now, call.service.stop_run))
    return _("Schedule {number} is deleted.", number=row.id)


def _keep(_call: CommandCall, row: ScheduleRow) -> str:
    return _("Schedule {number} stays as it is.", number=row.id)


def _history(call: CommandCall, row: ScheduleRow) -> str:
    fires = schedules.list_fires(call.execute, row.id, MAX_FIRES)
    if not fires:
        return _("Schedule {number} has not run yet.", number=row.id)
    lines = []
    for each in fires:
        values = {"time": format_times(row.timing, [each.due]), "result": _(RESULTS[each.state or each.result])}
        if each.run:
            lines.append(_("- {time}: {result} (run {run})", run=each.run, **values))
        else:
            lines.append(_("- {time}: {result}", **values))
    return "\n".join([_("The last times of schedule {number}, newest first:", number=row.id), *lines])


VERBS = {
    "confirm": _confirm,
    "decline": _decline,
    "pause": _pause,
    "resume": _resume,
    "run": _run,
    "here": _move_here,
    "delete": _delete,
    "keep": _keep,
    "history": _history,
}
OWNER_ONLY = ("confirm", "here")  # what an operator cannot decide for others


def zone_command(call: CommandCall) -> str:
    """Show or change the time zone of a person, in every chat of this channel."""
    person, channel = call.message.author, call.thread.channel
    if call.words:
        try:
            find_zone(call.words)
        except TimingError:
            if suggested := suggest_zones(call.words):
                commands = list_items(f"`{command_hint(f'zone {zone}')}`" for zone in suggested)
                return _("I don't know the time zone {name}. Did you mean {zones}?", name=call.words, zones=commands)
            return _(
                "I don't know the time zone {name}. Write one such as `{example}`.",
                name=call.words,
                example=command_hint("zone Europe/Berlin"),
            )
        people.set_zone(call.execute, channel, person.id, person.name, call.words)
    zone = people.zone_of(call.execute, channel, person.id) or call.current.config.time_zone
    if not zone:
        return _("I don't know your time zone. Tell me with `{example}`.", example=command_hint("zone Europe/Berlin"))
    time = f"{local_time(call.now, zone):%H:%M}"
    return _("Your time zone is {zone}; it is {time} there. Schedules keep theirs.", zone=zone, time=time)
