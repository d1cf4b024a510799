"""The notification at the end of a run: an edit of the reply does not notify its requester."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent.blocks import Final, command_hint
from agent.messages import Author
from bot.base.plain_text import plain_line
from bot.commands.waits import COMMAND
from bot.config.push import PushEvent
from bot.database.database import Execute
from bot.database.states import OutboxKind, QuestionState, RunState
from bot.journey.turn_part import EndedTurn, OutboxRow
from bot.notifications.called_people import call_people
from bot.rights import access
from bot.rights.approvals import find_hand_over
from bot.rights.claimed_run import ClaimedRun
from bot.rights.current import Current
from bot.service.pings import Ping, route_ping
from bot.storage import hand_overs, languages, outbox, people, questions
from catalogue import N_, _, format_duration, list_items

PING_TEXTS: dict[RunState, tuple[str, PushEvent]] = {
    RunState.DONE: (N_("Done after {time}."), "done"),
    RunState.WAITING: (N_("I need your answer to continue, after {time}."), "waiting"),
    RunState.FAILED: (N_("This failed after {time}."), "failed"),
}
FOR_GIVER = N_("A question waits for {giver}, for whom you stand in. `{command}` lists it here.")


class RunPings:
    """The part of notifications in the end of each turn."""

    def __init__(self, current: Current) -> None:
        self._current = current

    def present(self, execute: Execute, ended: EndedTurn, final: Final) -> Final:
        """Mention the person in the result of a run that nobody waited for, unless they want that elsewhere."""
        job = ended.job
        if not job.is_unattended or ended.state is RunState.STOPPED:
            return final
        if job.is_of_hook and ended.state is not RunState.WAITING:  # it is for the chat
            return final
        ping = _notification(execute, self._current, ended)
        is_here = ping is not None and route_ping(execute, self._current.config, ping, ended.now)
        return replace(final, mention=job.requester) if is_here else final

    def end(self, execute: Execute, ended: EndedTurn) -> Sequence[OutboxRow]:
        """Remember where the requester can be reached, and return the ping of a run whose reply is posted."""
        remember_private_chat(execute, ended.job)
        if ended.state is RunState.WAITING:
            tell_deputies(execute, self._current, ended)
        ping = make_ping(execute, self._current, ended) if ended.answers else None
        own = [(OutboxKind.PING, f"run:{ended.job.run}:ping", ping.dump())] if ping else []
        return [*own, *(call_people(execute, self._current.config, ended) if ended.answers else ())]


def make_ping(execute: Execute, current: Current, ended: EndedTurn) -> Final | None:
    """After a long run, make a short new message for the requester, unless they want it elsewhere: then send it there.

    The result of a run that nobody waited for is a new message itself.
    """
    job, channel = ended.job, ended.channel
    ping = None if job.is_unattended else _notification(execute, current, ended)
    if not ping or not route_ping(execute, current.config, ping, ended.now):
        return None
    if channel and channel.limits.edits_notify:
        return None
    return Final(_words_of(ended), mention=job.requester)


def _words_of(ended: EndedTurn, *, with_files: bool = True) -> str:
    took, files = format_duration(ended.now - ended.job.started), ended.collected.files
    if files and with_files:
        took = _("{time} ({files})", time=took, files=list_items(file.name for file in files))
    return _(PING_TEXTS[ended.state][0], time=took)


def _notification(execute: Execute, current: Current, ended: EndedTurn) -> Ping | None:
    """Return the notification of a run that was long, or for which nobody waited."""
    job, state = ended.job, ended.state
    after = access.notify_after(execute, job.thread.channel, job.requester, current.limits.notify_seconds)
    if state is RunState.STOPPED or after is None or (ended.now - job.started < after and not job.is_unattended):
        return None
    without_words = _words_of(ended, with_files=False) if any(message.private for message in job.messages) else ""
    words = _words_of(ended)
    elsewhere = _("“{title}”: {text}", title=job.title, text=words) if job.title else words
    event: PushEvent = "schedule" if job.is_unattended else PING_TEXTS[state][1]
    return Ping(job.requester, job.thread, elsewhere, f"run:{job.run}", event, without_words)


def tell_deputies(execute: Execute, current: Current, ended: EndedTurn) -> None:
    """Tell those who stand in for the requester, in their direct chats, that a question waits; of one of its own that
    they do not answer, nothing."""
    job, now = ended.job, ended.now
    asked = questions.unresolved_questions(execute, job.conversation)
    for row in hand_overs.of_giver(execute, job.thread.channel, job.requester, now):
        known = people.find_person(execute, row.channel, row.deputy)
        home = known.private_chat if known else None
        is_theirs = any(
            each.state == QuestionState.OPEN
            and find_hand_over(execute, current.access, each, job.thread, row.deputy, now) is not None
            for each in asked
        )
        if home is None or not is_theirs:
            continue
        with languages.speak_to(execute, home, Author(row.deputy, row.deputy_name)):
            text = _(FOR_GIVER, giver=plain_line(row.giver_name) or row.giver, command=command_hint(COMMAND))
        ping = Ping(row.deputy, home, text, f"run:{job.run}:deputy:{row.deputy}", "waiting")
        if route_ping(execute, current.config, ping, now):
            outbox.enqueue_notice(execute, home, text, key=ping.key, now=now)


def remember_private_chat(execute: Execute, job: ClaimedRun) -> None:
    """Store the private chat of a requester, where notifications and answers find them later."""
    for message in job.messages:
        if message.private and message.author.id == job.requester and message.is_by_person:
            known = people.find_person(execute, job.thread.channel, job.requester)
            if known is None or known.private_chat != job.thread.without_topic:
                people.store_address(execute, message)
            return
