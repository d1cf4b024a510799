"""Offboarding: a person is gone, so nothing may work, post or be allowed in their name any more.

`fawn offboard` does it at once, and `DepartureJobs` when the platform says so. Everything is one transaction; a job
then stops what runs in the service.

`DepartureJobs`: once a day, ask the platforms whether people with rights are gone, and offboard those who are.

A person is gone only if the platform said so on two days. A fault, a timeout or a missing permission says nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from typing import Any

from agent.messages import Author
from bot.base.background import Effect
from bot.base.times import TimingError
from bot.config.schema import Config
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind, command_line
from bot.database.database import Database, Execute
from bot.database.states import ScheduleState
from bot.journey.questions import close_open_questions
from bot.rights.current import Current
from bot.rights.known_people import is_possible_id
from bot.service.schedule_changes import record_change, withdraw_fire
from bot.service.schedule_words import ask_owner, confirmation_text
from bot.storage import languages, offboarding, outbox, people, schedules
from bot.storage.forgetting import PersonKey
from bot.storage.jobs import BackgroundJob, enqueue_job
from bot.storage.offboarding import LeftBehind
from bot.storage.schedules import ScheduleRow
from bot.team.pairing import readable_name
from catalogue import N_, _, list_items, ngettext
from channels.base import AccountChecker, Channel, ChannelError, Health, TryLater

STOP_WORK_JOB = "stop_work"
OFFERED = N_(
    "The owner of this schedule is gone, and it was handed to you. It would work with your rights and post here, so it"
    " waits until you say yes."
)


@dataclass(frozen=True, slots=True)
class OffboardReceipt:
    """What was ended, and which schedules were handed over. Of those that should have been, the owner never confirmed
    the `proposed` ones, and nobody knows a direct chat of the new owner for the `unreached` ones."""

    ended: tuple[int, ...]
    handed: tuple[int, ...]
    left: LeftBehind
    proposed: tuple[int, ...] = ()
    unreached: tuple[int, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the person had nothing."""
        return not (self.ended or self.handed) and self.left == LeftBehind()


def offboard(execute: Execute, person: PersonKey, to: PersonKey | None, now: float, via: str) -> OffboardReceipt:
    """End all that a person has, and hand their schedules over to another person of the channel, where they may go."""
    ended, handed, proposed, unreached = list[int](), list[int](), list[int](), list[int]()
    for row in offboarding.all_schedules(execute, person):
        withdraw_fire(execute, row)
        if to and row.state != ScheduleState.PROPOSED and _hand_over(execute, row, to, now):
            handed.append(row.id)
            continue
        if to:
            (proposed if row.state == ScheduleState.PROPOSED else unreached).append(row.id)
        record_change(execute, row, "end")
        offboarding.end_schedule(execute, row)
        ended.append(row.id)
    left = offboarding.end_account(execute, person, now)
    receipt = OffboardReceipt(tuple(ended), tuple(handed), left, tuple(proposed), tuple(unreached))
    if receipt.is_empty:
        return receipt
    payload = {"person": person.id, "runs": left.runs}
    enqueue_job(execute, key=f"{STOP_WORK_JOB}:{person.key}", kind=STOP_WORK_JOB, payload=payload)
    counts = {"schedules": len(ended), "handed": len(handed), "tasks": len(left.tasks), "grants": left.grants}
    what: dict[str, int | str] = {"via": via, **counts, "roles": len(left.roles), "pairing": int(left.pairing)}
    what |= {"keys": left.keys} if left.keys else {}
    what |= {"sessions": left.sessions} if left.sessions else {}
    what |= {"links": left.links} if left.links else {}
    audit.record(execute, AuditEvent(AuditKind.PERSON_OFFBOARDED, subject=person.key, what=what))
    return receipt


def _hand_over(execute: Execute, row: ScheduleRow, to: PersonKey, now: float) -> bool:
    """Offer a schedule to another person: it works with their rights, so it waits until they have read it as a whole
    and said yes. One that posts in the old owner's direct chat moves to theirs, in a new conversation; False where that
    is not known, or where its times cannot be computed."""
    known = people.find_person(execute, to.channel, to.id)
    chat = known.private_chat if known else None
    if (row.private and chat is None) or not _has_times(row, now):
        return False
    close_open_questions(execute, row.conversation, now)
    schedules.offer_to(execute, row.id, to.id, known.name if known else "", now)
    if row.private and chat:
        schedules.move_place(execute, row, chat, private=True)
    moved = schedules.find_schedule(execute, row.id)
    if moved is None:
        return False
    record_change(execute, moved, "hand over")
    ask_owner(execute, moved, now, key=f"sched:{row.id}:owner:{now:.3f}", why=OFFERED)
    return True


def _has_times(row: ScheduleRow, now: float) -> bool:
    with contextlib.suppress(TimingError):
        return bool(confirmation_text(row, now))
    return False


@dataclass(frozen=True, slots=True)
class StopWorkJobs:
    """Handles the job that stops what still runs for a person who is gone."""

    stop_run: Callable[[int, str], None]

    async def stop(self, job: BackgroundJob) -> Effect | None:
        """Stop the runs; commands end with their rows. Those that ended are unknown, and stay as they are."""
        given = job.arguments
        for run in given["runs"]:
            self.stop_run(run, given["person"])
        return None


def offboard_by_command(execute: Execute, channel: str, person: str, to: str) -> dict[str, Any] | str:
    """Offboard a person for the command line; return the receipt, or why that cannot be."""
    if to and (to == person or not is_possible_id(execute, channel, to)):
        return _("{person} is nobody on {channel} to whom schedules can go", person=to, channel=channel)
    other = PersonKey(channel, to) if to else None
    receipt = offboard(execute, PersonKey(channel, person), other, time.time(), str(command_line()["via"]))
    if receipt.is_empty:
        return _(
            "{person} has nothing on {channel}: no schedules, background tasks, grants, roles or pairing",
            person=person,
            channel=channel,
        )
    return receipt_of(PersonKey(channel, person), to, receipt)


def receipt_of(person: PersonKey, to: str, receipt: OffboardReceipt) -> dict[str, Any]:
    """Return a receipt with whose it is, to be described."""
    return {"channel": person.channel, "person": person.id, "to": to, **asdict(receipt)}


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


def describe_offboarding(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield the receipt: what was ended, and what was handed over."""
    left = answer["left"]
    numbers = {name: answer[name] for name in ("ended", "handed", "proposed", "unreached")} | {"tasks": left["tasks"]}
    listed = {name: list_items([str(number) for number in found]) for name, found in numbers.items()}
    yield _("Offboarded {person} on {channel}.", person=answer["person"], channel=answer["channel"])
    if answer["handed"]:
        waiting = listed["handed"]
        yield _("Schedules that wait until {other} accepts them: {numbers}.", other=answer["to"], numbers=waiting)
    if answer["ended"]:
        yield _("Schedules that were ended: {numbers}.", numbers=listed["ended"])
    if answer["unreached"]:
        text = _(
            "Not handed over, because they post in a direct chat and {other} has none with me: {numbers}.",
            numbers=listed["unreached"],
            other=answer["to"],
        )
        yield text
    if answer["proposed"]:
        yield _("Not handed over, because nobody had confirmed them: {numbers}.", numbers=listed["proposed"])
    if left["tasks"]:
        yield _("Background tasks that were cancelled: {numbers}.", numbers=listed["tasks"])
    if left["runs"]:
        n = len(left["runs"])
        yield ngettext("{n} request at work is being stopped.", "{n} requests at work are being stopped.", n)
    if left["grants"]:
        yield ngettext("{n} grant was taken back.", "{n} grants were taken back.", left["grants"])
    if left["keys"]:
        yield ngettext("{n} key of the API was revoked.", "{n} keys of the API were revoked.", left["keys"])
    if left["sessions"]:
        yield ngettext("{n} session of the page has ended.", "{n} sessions of the page have ended.", left["sessions"])
    if left["links"]:
        n = left["links"]
        yield ngettext("{n} link with another account has ended.", "{n} links with other accounts have ended.", n)
    if left["pairing"]:
        yield _("What pairing allowed has ended.")


def describe_rest(config: Config, answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield what else ended, and what still lets a person in who was put out."""
    if roles := answer.get("roles") or answer.get("left", {}).get("roles"):
        names = list_items(dict.fromkeys(roles))
        yield _("The roles that people gave in chats have ended, too: {roles}.", roles=names)
    rules = next((each.access for each in config.channels if each.name == answer["channel"]), None)
    for setting in rules.settings_naming(answer["person"]) if rules else ():
        at = f"channels.{answer['channel']}.access.{setting}"
        yield _("STILL LET IN by the configuration: `{setting}`. Change it there.", setting=at)


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
        found = await self._store.run(offboarding.people_with_rights)
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
            offboarding.note_present(execute, person)
            return
        if now - offboarding.note_gone(execute, person, now) < CONFIRM_SECONDS:
            return
        known = people.find_person(execute, person.channel, person.id)
        name = readable_name(known) if known and known.name else person.id
        receipt = offboard(execute, person, None, now, PLATFORM)
        offboarding.note_present(execute, person)
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
