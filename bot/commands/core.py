"""Commands: the bot answers them itself, at once and the same on every channel.

A command runs inside the transaction that marks it done and enqueues its answer, so it has its effect once. Effects
outside (cancelling a task) follow the commit and can be repeated safely.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from agent.blocks import command_hint
from agent.messages import Kind
from bot.base.plain_text import plain_line
from bot.commands.agents import run_agents_command
from bot.commands.background import describe_background, describe_others, end_background, withdraw_follow_ups
from bot.commands.call import Command, CommandCall
from bot.commands.help import describe_commands
from bot.commands.language import CHOICES, change_language
from bot.commands.model import model_command, models_command
from bot.commands.reload import reload_command
from bot.commands.search import search_command
from bot.commands.work import begin_in_mode, busy_answer, describe_waiting
from bot.database.states import InboxState
from bot.journey import questions
from bot.rights import deeds
from bot.storage import conversations, inbox, runs
from bot.storage.jobs import count_jobs
from bot.storage.runs import RunRow
from bot.storage.side_posts import drop_side_posts
from catalogue import N_, _, format_duration, join_sentences, list_items, ngettext
from channels.base import CommandInfo, Health

MODEL_WORDS = "NAME EFFORT | default"
MAX_NAMED_THREADS = 10  # in an answer
ALREADY_ENDED = N_("That work has ended already, so there is nothing to stop.")
NOT_LATEST = N_("That request is not the latest one here any more. Send it again to repeat it.")


def _help_command(call: CommandCall) -> str:
    """List what this person may use here."""
    allowed = [command for command in call.service.commands.ranked() if call.may(command.deed)]
    return describe_commands(CommandInfo(command.name, command.help) for command in allowed)


def _new_command(call: CommandCall) -> str:
    if words := _threads_here(call):
        begin = _("Each thread here is a conversation of its own. Mention me in a new message to begin one.")
        return join_sentences(begin, words)
    working = runs.stoppable_runs(call.execute, call.thread)
    waiting = describe_waiting(call)
    closed = _may_end(call) and questions.close_open_questions(call.execute, call.conversation, call.now)
    withdraw_follow_ups(call)
    begun = conversations.begin_conversation(call.execute, call.thread, call.now)
    if closed:  # what waited for the answer is a request of its own
        inbox.move_kept(call.execute, call.conversation, begun)
        conversations.refresh_pending(call.execute, call.conversation)
        conversations.refresh_pending(call.execute, begun)
    drop_side_posts(call.execute, call.thread)
    if working:
        titles = dict.fromkeys(_describe_run(call, run) for run in working)
        return _(
            "A fresh start: I no longer see what was said before. Still working on {titles}: `{stop}` stops it.",
            titles=list_items(_("“{title}”", title=title) for title in titles),
            stop=command_hint("stop"),
        )
    if closed:
        return _("A fresh start: I no longer see what was said before, and my open question is closed.")
    if waiting:
        return join_sentences(
            _("A fresh start: I no longer see what was said before."),
            _("What I asked somebody else stays open."),
        )
    return _("A fresh start: I no longer see what was said before.")


def _may_end(call: CommandCall) -> bool:
    """Return whether a person may end what the conversation waits for: who requested it, or an operator."""
    latest = runs.latest_run(call.execute, call.conversation)
    person = call.message.author.id
    return latest is None or latest.requester == person or call.may(deeds.ACT_FOR_OTHERS)


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
        if _may_end(call):
            closed = questions.close_open_questions(call.execute, call.conversation, call.now)
        if emptied or closed or going_on:
            return join_sentences(_("Stopped."), going_on)
        if not call.message.addressed:
            return ""
        others = describe_others(call)
        return join_sentences(others or _("Nothing is running here."), _threads_here(call))
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
    """Return the beginning of the request, or the title of work beside the thread."""
    rows = inbox.rows_of_run(call.execute, run.id)
    requests = [each.message.text for each in rows if each.kind == Kind.CHAT and each.message.is_by_person]
    row = conversations.find_conversation(call.execute, run.conversation)
    words = next(filter(None, requests), row.title if row else "")
    return plain_line(words) or _("your last request")


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
    return "\n".join([words, "", call.service.status(call.execute), *channels, str(count_jobs(call.execute))])


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


CORE_COMMANDS = (
    Command("help", N_("what I can do"), _help_command, rank=10),
    Command("new", N_("begin a new conversation here"), _new_command, deed=deeds.BEGIN_ANEW, rank=20),
    Command("stop", N_("stop what I am doing here"), _stop_command, rank=30),
    Command(
        "retry", N_("try the last request again"), _retry_command, "", deeds.HAVE_WORK, lambda _words: True, rank=40
    ),
    Command(
        "plan",
        N_("make a plan first, and work when you agree"),
        partial(begin_in_mode, mode="plan"),
        "WORDS",
        deeds.HAVE_WORK,
        bool,
        rank=50,
    ),
    Command(
        "goal",
        N_("work until a goal is met"),
        partial(begin_in_mode, mode="goal"),
        "WORDS",
        deeds.HAVE_WORK,
        bool,
        rank=60,
    ),
    Command("status", N_("is everything well, and what am I doing here?"), _status_command, rank=70),
    Command("model", N_("show or change the model here"), model_command, MODEL_WORDS, deeds.CHOOSE_HERE, rank=80),
    Command("models", N_("list the models"), models_command, rank=90),
    Command("agents", N_("list the agents, or choose one"), run_agents_command, "NAME", deeds.CHOOSE_HERE, rank=100),
    Command("search", N_("find what was said in this chat"), search_command, "WORDS", rank=110),
    Command("reload", N_("read the configuration again"), reload_command, deed=deeds.RELOAD, rank=240),
    Command("language", N_("show or change the language I speak"), _language_command, CHOICES, rank=270),
)
"""The commands that belong to no feature. The features' own stand between them, by their rank."""
