"""Commands: the bot answers them itself, at once and the same on every channel.

A command runs inside the transaction that marks it done and enqueues its answer, so it has its effect once. Effects
outside (cancelling a task) follow the commit and can be repeated safely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from agent.blocks import command_hint
from agent.messages import Kind
from agent.skills.skill import Skill
from bot.budgets.command import usage_command
from bot.commands.agents import run_agents_command
from bot.commands.call import Command, CommandCall
from bot.commands.help import describe_commands
from bot.commands.language import CHOICES, change_language
from bot.commands.model import model_command, models_command
from bot.commands.reload import reload_command
from bot.commands.search import search_command
from bot.commands.work import begin_in_mode, busy_answer, describe_waiting
from bot.journey import questions
from bot.memory.command import memory_command
from bot.notifications.command import NOTIFY_WORDS, notify_command
from bot.privacy.command import forget_command
from bot.privacy.own_data import export_command
from bot.rights import deeds
from bot.schedules.command import SCHEDULE_WORDS, begins_work, schedule_command, zone_command
from bot.service.plain_text import plain_line
from bot.skills.commands import SKILLS_WORDS, skills_command
from bot.storage import conversations, inbox, runs, tasks
from bot.storage.jobs import count_jobs
from bot.storage.runs import RunRow
from bot.storage.states import InboxState
from bot.tasks.command import TASK_WORDS, asks_retry, describe_background, end_background, task_command, tasks_command
from bot.team.audit_command import AUDIT_WORDS, audit_command
from bot.team.permissions_command import permissions_command
from bot.team.roles_commands import ACCESS_WORDS, access_command, whoami_command
from catalogue import N_, _, format_duration, join_sentences, list_items, ngettext
from channels.base import CommandInfo, Health
from channels.shared.texts import shorten

MAX_DESCRIPTION_CHARS = 60  # of a skill, in the list of commands
MAX_WITHDRAWN = 50
MAX_NAMED_THREADS = 10  # in an answer
ALREADY_ENDED = N_("That work has ended already, so there is nothing to stop.")
NOT_LATEST = N_("That request is not the latest one here any more. Send it again to repeat it.")


def _help_command(call: CommandCall) -> str:
    return describe_commands(CommandInfo(command.name, command.help) for command in COMMANDS)


def _new_command(call: CommandCall) -> str:
    if words := _threads_here(call):
        begin = _("Each thread here is a conversation of its own. Mention me in a new message to begin one.")
        return join_sentences(begin, words)
    working = runs.stoppable_runs(call.execute, call.thread)
    closed = questions.close_open_questions(call.execute, call.conversation, call.now)
    _withdraw_follow_ups(call)
    conversations.begin_conversation(call.execute, call.thread, call.now)
    if working:
        titles = dict.fromkeys(_describe_run(call, run) for run in working)
        return _(
            "A fresh start: I no longer see what was said before. Still working on {titles}: `{stop}` stops it.",
            titles=list_items(_("“{title}”", title=title) for title in titles),
            stop=command_hint("stop"),
        )
    if closed:
        return _("A fresh start: I no longer see what was said before, and my open question is closed.")
    return _("A fresh start: I no longer see what was said before.")


def _withdraw_follow_ups(call: CommandCall) -> None:
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


def _stop_command(call: CommandCall) -> str:
    """Stop every run at this address that this person may stop. A button stops the run of its reply only."""
    stoppable = runs.stoppable_runs(call.execute, call.thread)
    if pressed := call.message.target:
        stoppable = [run for run in stoppable if f"r{run.id}" == pressed]
        if not stoppable:
            return _(ALREADY_ENDED)
    person = call.message.author
    allowed = call.may(deeds.ACT_FOR_OTHERS)
    emptied = inbox.withdraw_pending(call.execute, call.message, everybody=allowed)  # no turn has begun with them
    for conversation in emptied:
        conversations.refresh_pending(call.execute, conversation)
    going_on = end_background(call, everybody=allowed)
    if not stoppable:  # a ❌ on an old reply needs no answer
        closed = False
        latest = runs.latest_run(call.execute, call.conversation)
        if latest and (allowed or latest.requester == person.id):
            closed = questions.close_open_questions(call.execute, call.conversation, call.now)
        if emptied or closed or going_on:
            return join_sentences(_("Stopped."), going_on)
        if not call.message.addressed:
            return ""
        return join_sentences(_("Nothing is running here."), _threads_here(call))
    mine = [run.id for run in stoppable if allowed or run.requester == person.id]
    if not mine and going_on:
        return join_sentences(_("Stopped."), going_on)
    if not mine:
        return _("Only the person who asked, or an operator, can stop this.")
    for run in mine:
        runs.request_stop(call.execute, run, person.id)
        call.after.append(partial(call.service.stop_run, run, person.id))
    if call.message.native or going_on:
        return join_sentences(_("Stopped."), going_on)
    return ""  # the reply of each run ends with it, too


def _describe_run(call: CommandCall, run: RunRow) -> str:
    """Return the title of a run's conversation, or else the beginning of the request."""
    row = conversations.find_conversation(call.execute, run.conversation)
    if row and row.title:
        return plain_line(row.title)
    requests = [each.message.text for each in inbox.rows_of_run(call.execute, run.id) if each.kind == Kind.CHAT]
    return plain_line(next(filter(None, requests), "")) or _("your last request")


def _threads_here(call: CommandCall) -> str:
    """Name the running threads of a chat whose conversations are threads; "" elsewhere."""
    if call.message.private or call.thread.topic or runs.count_runs(call.execute, call.conversation):
        return ""
    threads = runs.threads_of_chat(call.execute, call.thread)
    busy = [_("“{title}”", title=title or _("without a title")) for title, is_busy in threads if is_busy]
    if not busy:
        return _("No thread is running.") if threads else ""
    if more := busy[MAX_NAMED_THREADS:]:
        busy = [*busy[:MAX_NAMED_THREADS], ngettext("{n} more", "{n} more", len(more))]
    return _("Running threads: {threads}. Send the command inside one of them.", threads=list_items(busy))


def _retry_command(call: CommandCall) -> str:
    """Offer the messages of the last run again."""
    run = runs.latest_run(call.execute, call.conversation)
    pressed = call.message.target
    if pressed and (run is None or f"r{run.id}" != pressed):
        return _(NOT_LATEST)
    if busy := busy_answer(call, run):
        return busy
    rows = [
        row
        for row in (inbox.rows_of_run(call.execute, run.id) if run else ())
        if row.kind == Kind.CHAT and row.state != InboxState.DEAD
    ]
    if not rows:
        return _("Nothing to retry in this conversation yet.")
    for number, row in enumerate(rows):
        key = f"retry:{pressed or call.message.key}:{number}"  # a button counts once
        by = call.message.author.id
        again = replace(row.message, key=key, time=call.now, resent_by=by, root="", generation=0)
        inbox.store_message(call.execute, again, call.conversation, ready=call.now, received=call.now)
    conversations.refresh_pending(call.execute, call.conversation)
    return _("Trying again.")


def _status_command(call: CommandCall) -> str:
    """Say whether all is well and what goes on here. Operators, and the console, also see the state of the service."""
    words, on_console = _describe_health(call), call.thread.channel == "console"
    if not (on_console or call.may(deeds.SEE_SERVICE)):
        return words
    channels = call.service.channel_states() if on_console else ()
    return "\n".join([words, "", call.service.status(), *channels, str(count_jobs(call.execute))])


def _describe_health(call: CommandCall) -> str:
    match call.service.health():
        case Health.STARTING:
            return _("I'm still starting. I'll answer in a moment.")
        case Health.DOWN:
            broken = _("A part of me isn't working; whoever runs me sees which with `fawn status`.")
            return join_sentences(broken, _describe_work(call))
        case _well:
            return join_sentences(_("All is well."), _describe_work(call))


def _describe_work(call: CommandCall) -> str:
    return join_sentences(_describe_turns(call), describe_background(call))


def _describe_turns(call: CommandCall) -> str:
    if working := runs.stoppable_runs(call.execute, call.thread):
        time = format_duration(max(0.0, call.now - min(run.started for run in working)))
        return ngettext(
            "Working on {n} thing here for {time}.", "Working on {n} things here for {time}.", len(working), time=time
        )
    return describe_waiting(call) or _("I'm ready for your next message.")


def _language_command(call: CommandCall) -> str:
    leads = call.message.private or call.may(deeds.CHOOSE_FOR_CHAT)
    note = call.current.languages.note
    return change_language(
        call.execute,
        call.message,
        call.words,
        lambda *chosen: call.after.append(partial(note, *chosen)),
        may_choose_for_all=leads,
    )


COMMANDS = (
    Command("help", N_("what I can do"), _help_command),
    Command("new", N_("begin a new conversation here"), _new_command, deed=deeds.BEGIN_ANEW),
    Command("stop", N_("stop what I am doing here"), _stop_command),
    Command("retry", N_("try the last request again"), _retry_command, "", deeds.HAVE_WORK, lambda _words: True),
    Command(
        "plan",
        N_("make a plan first, and work when you agree"),
        partial(begin_in_mode, mode="plan"),
        "WORDS",
        deeds.HAVE_WORK,
        bool,
    ),
    Command(
        "goal", N_("work until a goal is met"), partial(begin_in_mode, mode="goal"), "WORDS", deeds.HAVE_WORK, bool
    ),
    Command("status", N_("is everything well, and what am I doing here?"), _status_command),
    Command("model", N_("show or change the model here"), model_command, "NAME EFFORT | default", deeds.CHOOSE_HERE),
    Command("models", N_("list the models"), models_command),
    Command("agents", N_("list the agents, or choose one"), run_agents_command, "NAME", deeds.CHOOSE_HERE),
    Command("search", N_("find what was said in this chat"), search_command, "WORDS"),
    Command("memory", N_("what I remember of you"), memory_command, "forget N | export | off | on"),
    Command(
        "schedule",
        N_("work, reminders and watched pages at set times"),
        schedule_command,
        SCHEDULE_WORDS,
        deeds.PLAN_TIMES,
        begins_work,
    ),
    Command("tasks", N_("what I do in the background"), tasks_command),
    Command(
        "task", N_("show, cancel or repeat a background task"), task_command, TASK_WORDS, deeds.CHANGE_OWN, asks_retry
    ),
    Command("zone", N_("show or change your time zone"), zone_command, "Europe/Berlin"),
    Command("permissions", N_("what I may do, and what I ask first"), permissions_command, "revoke NUMBER"),
    Command("usage", N_("what my models have cost"), usage_command, "chat | team"),
    Command("notify", N_("get a ping when long work is done"), notify_command, NOTIFY_WORDS),
    Command("skills", N_("list my skills; operators change them"), skills_command, SKILLS_WORDS),
    Command("whoami", N_("who you are to me, and what you may do"), whoami_command),
    Command("access", N_("show, give and take roles"), access_command, ACCESS_WORDS, deeds.GIVE_ROLE_HERE),
    Command("audit", N_("show who did what"), audit_command, AUDIT_WORDS, deeds.READ_AUDIT),
    Command("reload", N_("read the configuration again"), reload_command, deed=deeds.RELOAD),
    Command("export", N_("get what I have stored of you as a file"), export_command, "me"),
    Command("forget", N_("have me forget you"), forget_command, "me"),
    Command("language", N_("show or change the language I speak"), _language_command, CHOICES),
)
REGISTRY: Mapping[str, Command] = {command.name: command for command in COMMANDS} | {"start": COMMANDS[0]}


def listed_commands(skills: Sequence[Skill] = ()) -> list[CommandInfo]:
    """Return the commands, and the skills as further ones, for platforms that show them natively."""
    listed = [CommandInfo(command.name, _(command.help), command.words) for command in COMMANDS]
    return listed + [
        CommandInfo(skill.name, shorten(skill.description, MAX_DESCRIPTION_CHARS), "REQUEST")
        for skill in skills
        if skill.name not in REGISTRY
    ]
