"""Offboarding: a person is gone, so nothing may work, post or be allowed in their name any more.

`fawn offboard` does it at once, and `bot.team.departures` when the platform says so. Everything is one transaction; a
job then stops what runs in the service.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from agent.blocks import command_hint
from agent.messages import Author, Thread
from bot.base.jobs import Effect
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind, command_line
from bot.database.database import Execute
from bot.database.states import ScheduleState
from bot.journey.questions import close_open_questions
from bot.rights.known_people import is_possible_id
from bot.service.schedule_changes import record_change, short_words, withdraw_fire
from bot.storage import languages, offboarding, outbox, people, schedules
from bot.storage.forgetting import PersonKey
from bot.storage.jobs import BackgroundJob, enqueue_job
from bot.storage.offboarding import LeftBehind
from bot.storage.schedules import ScheduleRow
from catalogue import N_, _

STOP_WORK_JOB = "stop_work"
YOURS = N_(
    "Schedule {number} (“{what}”) is yours from now on: its owner is gone. It works with your rights and posts where it"
    " did. {pause} and {delete} end that."
)
YOURS_HERE = N_(
    "Schedule {number} (“{what}”) is yours from now on: its owner is gone. It works with your rights and posts here."
    " {pause} and {delete} end that."
)


@dataclass(frozen=True, slots=True)
class OffboardReceipt:
    """What was ended, and which schedules were handed over."""

    ended: tuple[int, ...]
    handed: tuple[int, ...]
    left: LeftBehind

    @property
    def is_empty(self) -> bool:
        """Whether the person had nothing."""
        return not (self.ended or self.handed) and self.left == LeftBehind()


def offboard(execute: Execute, person: PersonKey, to: PersonKey | None, now: float, via: str) -> OffboardReceipt:
    """End all that a person has, and hand their schedules over to another person of the channel, where they may go."""
    ended, handed = list[int](), list[int]()
    for row in offboarding.all_schedules(execute, person):
        withdraw_fire(execute, row)
        if to and _hand_over(execute, row, to, now):
            handed.append(row.id)
        else:
            record_change(execute, row, "end")
            offboarding.end_schedule(execute, row)
            ended.append(row.id)
    receipt = OffboardReceipt(tuple(ended), tuple(handed), offboarding.end_account(execute, person, now))
    if receipt.is_empty:
        return receipt
    left = receipt.left
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
    """Make another person the owner of a schedule, and tell them. One that posts in the old owner's direct chat moves
    to theirs, in a new conversation; False where that is not known, and for a proposal."""
    known = people.find_person(execute, to.channel, to.id)
    chat = known.private_chat if known else None
    if row.state == ScheduleState.PROPOSED or (row.private and chat is None):
        return False
    close_open_questions(execute, row.conversation, now)
    schedules.change_owner(execute, row.id, to.id, known.name if known else "")
    if row.private and chat:
        schedules.move_place(execute, row, chat, private=True)
    moved = schedules.find_schedule(execute, row.id)
    if moved is None:
        return False
    record_change(execute, moved, "hand over")
    _tell_owner(execute, moved, chat or moved.place, to, now)
    return True


def _tell_owner(execute: Execute, row: ScheduleRow, where: Thread, to: PersonKey, now: float) -> None:
    with languages.speak_to(execute, where, Author(to.id, "")):
        sentence = YOURS_HERE if where.without_topic == row.place.without_topic else YOURS
        verbs = {verb: command_hint(f"schedule {verb} {row.id}") for verb in ("pause", "delete")}
        words = short_words(row, sentence, **verbs)
        outbox.enqueue_notice(execute, where, words, key=f"sched:{row.id}:owner:{now:.3f}", now=now, mention=to.id)


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
