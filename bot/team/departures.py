"""Departures: once a day, ask the platforms whether people with rights are gone, and offboard those who are.

A person is gone only if the platform said so on two days. A fault, a timeout or a missing permission says nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from itertools import groupby

from agent.messages import Author
from bot.database.database import Database, Execute
from bot.rights.current import Current
from bot.service.offboarding_words import describe_offboarding, describe_rest
from bot.storage import departures, languages, outbox, people
from bot.storage.forgetting import PersonKey
from bot.storage.jobs import BackgroundJob
from bot.team.offboarding import offboard, receipt_of
from bot.team.pairing import readable_name
from catalogue import N_, _
from channels.base import AccountChecker, Channel, ChannelError, Health, TryLater

log = logging.getLogger(__name__)

DEPARTURES_JOB = "departures"
DAY_SECONDS = 86_400.0  # between two rounds
CONFIRM_SECONDS = 20 * 3600.0  # between two answers that count as of different days
CONNECT_SECONDS = 60.0  # a round waits so long for a channel
ANSWER_SECONDS = 60.0
POLL_SECONDS = 0.2
MAX_WAITS = 3  # for one answer
MAX_WAIT_SECONDS = 15.0
MAX_FAULTS = 5  # in a row: then the others of the channel are asked in the next round
PLATFORM = "platform"  # what the audit names in place of a person
GONE = N_(
    "{name} has left: on two days, {channel} said that the account is deactivated or has left. So I ended what it had"
    " here."
)


class DepartureJobs:
    """Asks about all people with rights. `clock` returns the unix time."""

    def __init__(
        self,
        store: Database,
        current: Current,
        channel: Callable[[str], Channel | None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._current = current
        self._channel = channel
        self._clock = clock

    async def check(self, _: BackgroundJob) -> None:
        """Do one round over all channels."""
        found = await self._store.run(departures.people_with_rights)
        for name, group in groupby(found, key=lambda person: person.channel):
            channel = self._channel(name)
            checker: object = channel
            if channel and isinstance(checker, AccountChecker) and await _is_connected(channel):
                await self._check_channel(checker, list(group))

    async def _check_channel(self, checker: AccountChecker, found: list[PersonKey]) -> None:
        faults = 0
        first = int(self._clock() // DAY_SECONDS) % len(found)  # so that a fault does not always spare the same
        for person in found[first:] + found[:first]:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    is_gone = await _ask(checker, person.id)
            except (ChannelError, TimeoutError) as error:
                log.info("departures.unknown person=%s reason=%s", person.key, error or "no answer in time")
                faults += 1
                if faults == MAX_FAULTS:
                    return
                continue
            faults = 0
            if is_gone is not None:
                await self._store.run(partial(self._record, person=person, is_gone=is_gone))

    def _record(self, execute: Execute, person: PersonKey, is_gone: bool) -> None:
        """Store what the platform said. Offboard who is gone for the second day."""
        now = self._clock()
        if not is_gone:
            departures.note_present(execute, person)
            return
        if now - departures.note_gone(execute, person, now) < CONFIRM_SECONDS:
            return
        known = people.find_person(execute, person.channel, person.id)
        name = readable_name(known) if known and known.name else person.id
        receipt = offboard(execute, person, None, now, PLATFORM)
        departures.note_present(execute, person)
        if receipt.is_empty:
            return
        log.info("departures.offboarded person=%s", person.key)
        said = receipt_of(person, "", receipt)
        for row in self._current.access.reachable_operators(execute, console=True):
            if (chat := row.private_chat) and (row.channel, row.person) != (person.channel, person.id):
                with languages.speak_to(execute, chat, Author(row.person, row.name)):
                    first = _(GONE, name=name, channel=person.channel)
                    rest = (*describe_offboarding(said), *describe_rest(self._current.config, said))
                key = f"gone:{person.key}:{now:.3f}:{row.channel}:{row.person}"
                outbox.enqueue_notice(execute, chat, "\n".join((first, *rest)), key=key, now=now)


async def _ask(checker: AccountChecker, person: str) -> bool | None:
    """Ask about one person, and wait where the platform limits the rate of calls. Raises ChannelError."""
    for _attempt in range(MAX_WAITS):
        try:
            return await checker.is_gone(person)
        except TryLater as error:
            if error.after > MAX_WAIT_SECONDS:
                raise
            await asyncio.sleep(error.after)
    return await checker.is_gone(person)


async def _is_connected(channel: Channel) -> bool:
    """Return whether the channel is connected, now or in a moment."""
    for _attempt in range(round(CONNECT_SECONDS / POLL_SECONDS)):
        if channel.readiness().health is Health.READY:
            return True
        await asyncio.sleep(POLL_SECONDS)
    return False
