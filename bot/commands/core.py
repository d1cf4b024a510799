"""Commands: the bot answers them itself, at once and the same on every channel.

A command runs inside the transaction that marks it done and enqueues its answer, so it has its effect once. Effects
outside (cancelling a task) follow the commit and can be repeated safely.

`/help`: what there is, in groups. The commands stand one a line, each after its name.

`/search`: find what was said in a chat.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from functools import partial
from zoneinfo import ZoneInfo

from agent.blocks import command_hint
from agent.messages import Kind
from agent.permissions.invisible import show_line
from bot.base.plain_text import code_block, plain_line, without_formatting
from bot.commands.background import describe_background, describe_others, end_background, withdraw_follow_ups
from bot.commands.call import Command, CommandCall
from bot.commands.choices import CHOICES, change_language, model_command, models_command, run_agents_command
from bot.commands.reload import reload_command
from bot.commands.work import begin_in_mode, busy_answer, describe_waiting
from bot.database.rows import parse_row_id
from bot.journey import questions
from bot.journey.addressing import own_key
from bot.journey.transcript import step_of
from bot.rights import deeds
from bot.storage import conversations, inbox, runs, transcripts
from bot.storage.jobs import count_jobs
from bot.storage.overheard import drop_side_posts
from bot.storage.runs import RunRow
from catalogue import N_, _, format_duration, join_sentences, list_items, ngettext
from channels.base import CommandInfo, Health
from channels.shared.reply_layout import step_line

WHAT_I_DO = N_(
    "Tell me what you need. I work in a private sandbox: send me files to use, and I send back what I make."
    " You can keep writing while I work."
)
GROUPS = (
    (N_("Work"), ("new", "stop", "retry", "plan", "goal", "steps", "search")),
    (N_("Who answers, and how"), ("model", "models", "agents", "skills", "language")),
    (N_("Later, and in the background"), ("waiting", "approve", "deny", "schedule", "zone", "tasks", "task", "notify")),
    (N_("You"), ("whoami", "link", "unlink", "memory", "usage", "privacy", "export", "forget")),
    (N_("The service and its rules"), ("help", "status", "permissions", "access", "audit", "hooks", "reload")),
)
OTHERS = N_("More")


def describe_commands(commands: Iterable[CommandInfo]) -> str:
    """Return what I do and the commands, as Markdown: each group has a title line."""
    left = {command.name: command.help for command in commands}
    groups = [(title, {name: left.pop(name) for name in names if name in left}) for title, names in GROUPS]
    paragraphs = [
        "\n".join([f"**{_(title)}**", *(f"`{command_hint(name)}` {_(words)}" for name, words in group.items())])
        for title, group in (*groups, (OTHERS, left))
        if group
    ]
    return "\n\n".join([_(WHAT_I_DO), *paragraphs])


MAX_FOUND, SNIPPET_CHARS = 10, 160


def search_command(call: CommandCall) -> str:
    """Search this chat only: everybody who reads the answer may read what it quotes."""
    words = call.words.split()[: transcripts.MAX_WORDS]
    if not words:
        return _(
            "`{command}` finds what was said in this chat, such as `{example}`.",
            command=command_hint("search WORDS"),
            example=command_hint("search budget 2026"),
        )
    channel = call.service.channel(call.thread.channel)
    topics = channel is not None and not channel.limits.private_topics
    found = transcripts.search_chat(call.execute, call.thread, words, MAX_FOUND + 1, topics=topics)
    if not found:
        nothing = N_("I found nothing in this chat with {words}.")
        nothing = nothing if topics else N_("I found nothing in this thread with {words}.")
        return _(nothing, words=list_items(f"“{word}”" for word in words))
    time_zone = call.current.config.time_zone
    zone = ZoneInfo(time_zone) if time_zone else None
    lines = []
    for entry in found[:MAX_FOUND]:
        name, at = entry.name or _("I"), datetime.fromtimestamp(entry.at, zone)
        lines.append(f"- {at:%Y-%m-%d %H:%M} · {name}: {_snippet(entry.text, words[0])}")
    if len(found) > MAX_FOUND:
        lines += ["", _("These are the newest {n}; add words to find less.", n=MAX_FOUND)]
    heading = _("Found in this chat, newest first:") if topics else _("Found in this thread, newest first:")
    return "\n".join([heading, *lines])


def _snippet(text: str, word: str) -> str:
    """Return the text around a word on one line, without characters that would format it."""
    line = without_formatting(text)
    begin = max(0, line.lower().find(word.lower()) - SNIPPET_CHARS // 3)
    cut = line[begin : begin + SNIPPET_CHARS]
    return f"{'…' * (begin > 0)}{cut}{'…' * (begin + len(cut) < len(line))}"


MODEL_WORDS = "NAME EFFORT [me] | default [me]"
MAX_NAMED_THREADS = 10  # in an answer
MAX_LISTED_STEPS = 30
MAX_RUNS_BACK = 50  # among which the last request is looked for
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
    """Offer the messages of the last request again: of what a button belongs to, else of a person."""
    conversation = call.conversation if call.message.target else _conversation_to_retry(call)
    latest = runs.latest_runs(call.execute, conversation, MAX_RUNS_BACK)
    run, pressed = next(iter(latest), None), call.message.target
    if pressed and (run is None or f"r{run.id}" != pressed):
        return _(NOT_LATEST)
    if busy := busy_answer(call, run):
        return busy
    requests = (inbox.rows_of_request(call.execute, each.id, conversation) for each in latest)
    rows = next((rows for rows in requests if pressed or any(row.message.is_by_person for row in rows)), [])
    if not rows:
        return _("Nothing to retry in this conversation yet.")
    for number, row in enumerate(rows):
        key = f"retry:{pressed or call.message.key}:{number}"  # a button counts once
        by = call.message.author.id
        again = replace(row.message, key=key, time=call.now, resent_by=by, root="", generation=0)
        inbox.store_message(call.execute, again, conversation, ready=call.now, received=call.now)
    conversations.refresh_pending(call.execute, conversation)
    return _("Trying again.")


def _conversation_to_retry(call: CommandCall) -> str:
    """Return where the last request of the author was answered: in the thread's conversation, or their own one."""
    person = call.message.author.id
    own = own_key(call.conversation, person)
    beside = runs.latest_run(call.execute, own)
    if beside is None:
        return call.conversation
    here = runs.latest_runs(call.execute, call.conversation, MAX_RUNS_BACK)
    latest = next((run.id for run in here if person in runs.people_of(run)), 0)
    return own if beside.id > latest else call.conversation


def _steps_command(call: CommandCall) -> str:
    """List the steps of the last answer, or show what one of them returned: to those whose request it was."""
    found = transcripts.latest_steps(call.execute, call.conversation)
    steps = [each for entry in found if not (each := step_of(entry)).parent and not each.thinking]
    if not steps:
        return _("There are no steps to show yet.")
    run = runs.find_run(call.execute, found[0].run)
    if not (run and call.message.author.id in runs.people_of(run)) and not call.may(deeds.ACT_FOR_OTHERS):
        return _("Only the person who asked, or an operator, can see these steps.")
    if not call.words:
        lines = [f"{number}. {show_line(step_line(step))}" for number, step in enumerate(steps, 1)]
        more = ngettext("… {n} earlier step", "… {n} earlier steps", max(0, len(lines) - MAX_LISTED_STEPS))
        hint = _("`{command}` shows what a step returned.", command=command_hint("steps 1"))
        return "\n".join([*([more] if len(lines) > MAX_LISTED_STEPS else []), *lines[-MAX_LISTED_STEPS:], "", hint])
    number = parse_row_id(call.words.strip("# "))
    if number is None or not 0 < number <= len(steps):
        return _("There is no step {number}. `{command}` lists them.", number=call.words, command=command_hint("steps"))
    step = steps[number - 1]
    text = "\n\n".join(filter(None, (step.detail, step.output))) or _("This step returned nothing.")
    return f"{number}. {show_line(step_line(step))}\n{code_block(text)}"


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
    Command("steps", N_("show the steps of the last answer, or what one returned"), _steps_command, "NUMBER", rank=105),
    Command("search", N_("find what was said in this chat"), search_command, "WORDS", rank=110),
    Command("reload", N_("read the configuration again"), reload_command, deed=deeds.RELOAD, rank=240),
    Command("language", N_("show or change the language I speak"), _language_command, CHOICES, rank=270),
)
"""The commands that belong to no feature. The features' own stand between them, by their rank."""
