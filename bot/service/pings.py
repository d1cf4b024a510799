"""Notify the right person in the right place: in the chat, in their private chat, or outside of the chats.

A notification says that something ended or waits; the answer itself is always posted where it belongs. Quiet hours and
a digest hold notifications back, and deliver them together. Everything happens in the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from datetime import time as clock_time

from agent.messages import Author, Thread
from bot.base.times import find_zone
from bot.config.operations import PushEvent
from bot.config.schema import Config
from bot.database.database import Execute
from bot.rights.current import Current
from bot.storage import held_pings, languages, outbox, people
from bot.storage.held_pings import HeldPing
from bot.storage.jobs import enqueue_job
from bot.storage.people import PersonRow

PUSH_JOB, DIGEST_JOB = "push", "digest"


@dataclass(frozen=True, slots=True)
class Ping:
    """A notification of a person. `thread` is the address that it is about, and `key` makes it one.

    `without_words` is what others than the person may read of a direct chat: no title, no names; "" elsewhere.
    """

    person: str
    thread: Thread
    text: str
    key: str
    event: PushEvent
    without_words: str = ""

    @property
    def person_key(self) -> str:
        """The person as the configuration names them."""
        return f"{self.thread.channel}/{self.person}"


def route_ping(execute: Execute, config: Config, ping: Ping, now: float) -> bool:
    """Send a notification wherever the person wants it. Return whether it belongs into its thread, now.

    The caller posts that one.
    """
    for target in config.push.targets:
        if ping.event in target.events and (not target.people or ping.person_key in target.people):
            text = ping.text if ping.person_key in target.people else ping.without_words or ping.text
            enqueue_push(execute, replace(ping, text=text), {"target": target.name})
    known = people.find_person(execute, ping.thread.channel, ping.person)
    if known is None:
        return True
    if known.notify is not None and known.notify < 0:
        return False
    if (until := held_until(known, config.time_zone, now)) > now:
        held_pings.hold_ping(execute, HeldPing(ping.key, known.channel, known.person, str(ping.thread), ping.text, now))
        enqueue_digest(execute, known, until)
        return False
    match known.notify_where:
        case "push" if known.push_url:
            enqueue_push(execute, ping, {"channel": known.channel, "person": known.person})
            return False
        case "dm" if (chat := known.private_chat) and chat != ping.thread.without_topic:
            outbox.enqueue_notice(execute, chat, ping.text, key=f"dm:{ping.key}", now=now)
            return False
    return True


def held_until(person: PersonRow, default_zone: str, now: float) -> float:
    """Return when a notification may reach a person; `now` if it may now."""
    local = datetime.fromtimestamp(now, find_zone(person.zone or default_zone or "UTC"))
    until = local
    if person.digest:
        until = _next_clock_time(local, parse_clock_time(person.digest))
    if person.quiet:
        begin, end = map(parse_clock_time, person.quiet.split("-"))
        at = until.time()
        is_quiet = begin <= at < end if begin <= end else at >= begin or at < end
        until = _next_clock_time(until, end) if is_quiet else until
    return now if until == local else until.timestamp()


def parse_clock_time(text: str) -> clock_time:
    """Parse a time of day such as "22:00". Raises ValueError."""
    return datetime.strptime(text.strip(), "%H:%M").time()  # noqa: DTZ007 — a time of day


def _next_clock_time(after: datetime, at: clock_time) -> datetime:
    found = datetime.combine(after.date(), at, after.tzinfo)
    return found if found > after else datetime.combine(after.date() + timedelta(days=1), at, after.tzinfo)


def enqueue_digest(execute: Execute, person: PersonRow, due: float) -> None:
    """Deliver what is held back for a person when it is due."""
    payload = {"channel": person.channel, "person": person.person}
    key = f"{DIGEST_JOB}:{person.channel}/{person.person}"
    enqueue_job(execute, key=key, kind=DIGEST_JOB, payload=payload, due=due)


def enqueue_push(execute: Execute, ping: Ping, to: dict[str, str]) -> None:
    """Have a notification pushed to a target, or to the device of a person."""
    key = f"{PUSH_JOB}:{ping.key}:{to.get('target', '')}"
    payload = {**to, "key": ping.key, "text": ping.text, "event": ping.event, "thread": str(ping.thread)}
    enqueue_job(execute, key=key, kind=PUSH_JOB, payload={**payload, "who": ping.person}, keep=True)


def tell_operators(
    execute: Execute,
    current: Current,
    key: str,
    say: Callable[[], str],
    now: float,
    is_unheard: Callable[[PersonRow, Thread], bool],
) -> None:
    """Tell all operators on platforms the same, each in their language. `key` makes it one.

    Where what is said in a chat `is_unheard`, it only goes where notifications of that operator do.
    """
    for row in current.access.reachable_operators(execute, console=False):
        if (place := row.private_chat) is None:
            continue
        each = f"{key}:{row.channel}:{row.person}"
        with languages.speak_to(execute, place, Author(row.person, row.name)):
            if is_unheard(row, place):
                route_ping(execute, current.config, Ping(row.person, place, say(), each, "waiting"), now)
            else:
                outbox.enqueue_notice(execute, place, say(), key=each, now=now)
