"""Deliver together what quiet hours and a digest held back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import groupby

from agent.messages import Author, Kind, Message, Origin, Thread
from bot.commands.waits import Waiting, offer_list
from bot.database.database import Database, Execute
from bot.rights.current import Current
from bot.service.pings import Ping, enqueue_digest, enqueue_push, held_until
from bot.storage import held_pings, languages, outbox, people
from bot.storage.held_pings import HeldPing
from bot.storage.jobs import BackgroundJob
from bot.storage.people import PersonRow
from catalogue import ngettext


class DigestJobs:
    """Deliver the notifications that were held back."""

    def __init__(
        self,
        store: Database,
        current: Current,
        waits: Callable[[Execute, Message, float], Sequence[tuple[int, Waiting]]],
    ) -> None:
        self._store = store
        self._current = current
        self._waits = waits

    async def run(self, job: BackgroundJob) -> Callable[[Execute], object]:
        """Return what delivers them together, where the person wants them now."""
        channel, person = job.arguments["channel"], job.arguments["person"]

        def deliver(execute: Execute) -> None:
            known = people.find_person(execute, channel, person)
            if known is None:
                return
            now = time.time()
            until = held_until(known, self._current.config.time_zone, now) if known.quiet else now
            if until > now and not known.digest:  # the quiet hours were changed meanwhile
                enqueue_digest(execute, known, until)
                return
            pings = held_pings.take_held(execute, channel, person)
            for thread, group in groupby(sorted(pings, key=lambda ping: ping.thread), key=lambda ping: ping.thread):
                self._deliver(execute, known, thread, [*group], now)
            if pings:
                self._lead_to_list(execute, known, pings[-1].key, now)

        return deliver

    def _lead_to_list(self, execute: Execute, known: PersonRow, key: str, now: float) -> None:
        """Say in a person's direct chat how much waits for them in all chats, with a button that lists it."""
        if (home := known.private_chat) is None:
            return
        author = Author(known.person, known.name)
        viewer = Message(home, key, "", author, "", now, Kind.COMMAND, private=True, origin=Origin.PERSON)
        if found := self._waits(execute, viewer, now):
            with languages.speak_to(execute, home, author):
                ask = offer_list(len(found))
            outbox.enqueue_notice(execute, home, ask.question, key=f"waiting:{key}", now=now, asks=(ask,))

    def _deliver(self, execute: Execute, known: PersonRow, thread: str, pings: list[HeldPing], now: float) -> None:
        place = Thread.parse(thread)
        with languages.speak_to(execute, place, Author(known.person, known.name)):
            heading = ngettext("{n} notification:", "{n} notifications:", len(pings))
        text = pings[0].text if len(pings) == 1 else "\n".join([heading, *(f"- {ping.text}" for ping in pings)])
        ping = Ping(known.person, place, text, f"held:{pings[0].key}", "done")
        if known.notify_where == "push" and known.push_url:
            enqueue_push(execute, ping, {"channel": known.channel, "person": known.person})
            return
        to = (known.private_chat if known.notify_where == "dm" else None) or place
        outbox.enqueue_notice(execute, to, text, key=ping.key, now=now, mention=known.person)
