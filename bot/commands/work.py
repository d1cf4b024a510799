"""Commands that have the agent work: whether it may begin here, and in which mode."""

from __future__ import annotations

from dataclasses import replace

from agent.blocks import command_hint
from agent.messages import Kind, Mode
from bot.base.plain_text import plain_line
from bot.commands.call import CommandCall
from bot.database.states import QuestionState, RunState
from bot.rights import allowance
from bot.rights.allowance import Lineage
from bot.rights.approvals import may_answer
from bot.storage import conversations, inbox, runs
from bot.storage import questions as stored_questions
from bot.storage.runs import RunRow
from catalogue import N_, _, join_sentences, localized

USAGE = {
    "plan": N_(
        "`{command}` makes a plan first. I only read and search until you agree, and you can change or cancel the plan."
    ),
    "goal": N_(
        "`{command}` works in rounds until a second look says that the goal is met, at most {rounds} of them. `{stop}`"
        " ends it."
    ),
}


NOT_TAKEN = N_(
    "I have not taken your words: send `{command}` again when I'm done, or write them without the command to add them"
    " to this work."
)


def begin_in_mode(call: CommandCall, mode: Mode) -> str:
    """Let the agent work on the words of a command in a mode."""
    if not call.words:
        values = {"rounds": call.current.config.goal.rounds, "stop": command_hint("stop")}
        return _(USAGE[mode], command=command_hint(f"{mode} WORDS"), **values)
    if busy := busy_answer(call, runs.latest_run(call.execute, call.conversation)):
        return join_sentences(busy, _(NOT_TAKEN, command=command_hint(f"{mode} WORDS")))
    message = call.message
    request = replace(message, key=f"{mode}:{message.key}", kind=Kind.CHAT, text=call.words, mode=mode, native=False)
    if mode == "goal":  # its rounds go on without a person
        author, lineage = message.author.id, Lineage.of_message(request)
        used_up = allowance.take(
            call.execute, call.current.follow_ups, request.key, lineage, message.thread.channel, author, call.now
        )
        if used_up:
            return localized(used_up.text)
    if message.native:
        request = replace(request, id="")  # there is no message to reply to
    inbox.store_message(call.execute, request, call.conversation, ready=call.now, received=call.now)
    conversations.refresh_pending(call.execute, call.conversation)
    return _("I'm on it.") if message.native else ""


def busy_answer(call: CommandCall, latest: RunRow | None) -> str | None:
    """Return why no work can begin here now, None if it can."""
    if not latest or latest.state not in (RunState.QUEUED, RunState.RUNNING, RunState.WAITING):
        return None
    waiting = describe_waiting(call) if latest.state == RunState.WAITING else ""  # the next message is the answer
    return join_sentences(waiting, start_over_hint()) if waiting else _("I'm still working on it.")


def start_over_hint() -> str:
    """Return the sentence about the way out of an open question."""
    return _("`{new}` starts over.", new=command_hint("new"))


def describe_waiting(call: CommandCall) -> str:
    """Return for which answer the conversation waits, this person's if they may give one; "" for none."""
    unresolved = stored_questions.unresolved_questions(call.execute, call.conversation)
    asked = [question for question in unresolved if question.state == QuestionState.OPEN]
    if not asked:
        return ""
    access, person = call.current.access, call.message.author.id
    for question in asked:
        if may_answer(call.execute, access, question, call.thread, person, at=call.now):
            return _("I'm waiting for your answer to “{question}”.", question=plain_line(question.text))
    return _("I'm waiting for somebody else's answer to “{question}”.", question=plain_line(asked[0].text))
