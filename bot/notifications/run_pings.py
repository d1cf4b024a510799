"""The notification at the end of a run: an edit of the reply does not notify its requester."""

from __future__ import annotations

from collections.abc import Sequence

from agent.blocks import Final
from bot.config.push import PushEvent
from bot.current import Current
from bot.journey.claimed_run import ClaimedRun
from bot.journey.turn_part import EndedTurn, OutboxRow
from bot.rights import access
from bot.service.pings import Ping, route_ping
from bot.storage import people
from bot.storage.database import Execute
from bot.storage.states import OutboxKind, RunState
from catalogue import N_, _, format_duration, list_items

PING_TEXTS: dict[RunState, tuple[str, PushEvent]] = {
    RunState.DONE: (N_("Done after {time}."), "done"),
    RunState.WAITING: (N_("I need your answer to continue, after {time}."), "waiting"),
    RunState.FAILED: (N_("This failed after {time}."), "failed"),
}


class RunPings:
    """The part of notifications in the end of each turn."""

    def __init__(self, current: Current) -> None:
        self._current = current

    def end(self, execute: Execute, ended: EndedTurn) -> Sequence[OutboxRow]:
        """Remember where the requester can be reached, and return the ping of a run whose reply is posted."""
        remember_private_chat(execute, ended.job)
        ping = make_ping(execute, self._current, ended) if ended.answers else None
        return [(OutboxKind.PING, f"run:{ended.job.run}:ping", ping.dump())] if ping else ()


def make_ping(execute: Execute, current: Current, ended: EndedTurn) -> Final | None:
    """After a long run, make a short new message for the requester, unless they want it elsewhere: then send it there.

    The result of a scheduled run is a new message itself; it is a notification elsewhere only.
    """
    job, state, channel = ended.job, ended.state, ended.channel
    seconds, scheduled = ended.now - job.started, job.is_unattended
    after = access.notify_after(execute, job.thread.channel, job.requester, current.limits.notify_seconds)
    if state is RunState.STOPPED or after is None or (seconds < after and not scheduled):
        return None
    took = format_duration(seconds)
    text, event = PING_TEXTS[state]
    without_words = _(text, time=took) if any(message.private for message in job.messages) else ""
    if ended.collected.files:
        took = _("{time} ({files})", time=took, files=list_items(file.name for file in ended.collected.files))
    words = _(text, time=took)
    elsewhere = _("“{title}”: {text}", title=job.title, text=words) if job.title else words
    ping = Ping(
        job.requester, job.thread, elsewhere, f"run:{job.run}", "schedule" if scheduled else event, without_words
    )
    if (
        not route_ping(execute, current.config, ping, ended.now)
        or scheduled
        or (channel and channel.limits.edits_notify)
    ):
        return None
    return Final(words, mention=job.requester)


def remember_private_chat(execute: Execute, job: ClaimedRun) -> None:
    """Store the private chat of a requester, where notifications and answers find them later."""
    for message in job.messages:
        if message.private and message.author.id == job.requester and message.is_by_person:
            known = people.find_person(execute, job.thread.channel, job.requester)
            if known is None or known.private_chat != job.thread.without_topic:
                people.store_address(execute, message)
            return
