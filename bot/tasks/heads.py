"""Say above a post what worked: the number and title of the task or schedule, and whose it is."""

from __future__ import annotations

from dataclasses import replace

from agent.blocks import Final
from bot.base.side_work import name_side_work
from bot.database.database import Execute
from bot.journey.turn_part import EndedTurn
from bot.rights.claimed_run import ClaimedRun
from bot.rights.known_people import call_person
from catalogue import N_, _

HEADS = {  # by the kind of the work: for its person, and in a shared chat
    "task": (N_("🔧 Task {number}: “{title}”"), N_("🔧 Task {number} for {name}: “{title}”")),
    "schedule": (N_("⏰ Schedule {number}: “{title}”"), N_("⏰ Schedule {number} of {name}: “{title}”")),
    "hook": (N_("🔔 Hook “{title}”"), N_("🔔 Hook “{title}”")),
}


def present_work(execute: Execute, ended: EndedTurn, final: Final) -> Final:
    """Put a head above what a background agent, or the run of a schedule or hook, says or asks."""
    head = _head_of(execute, ended.job)
    return replace(final, text=f"{head}\n\n{final.text}".strip()) if head else final


def _head_of(execute: Execute, job: ClaimedRun) -> str:
    work = name_side_work(job.conversation, job.title)
    if not work.kind:
        return ""
    alone, shared = HEADS[work.kind]
    name = "" if job.who.private else call_person(execute, job.thread.channel, job.requester, job.author.name)
    return _(shared if name else alone, number=work.number, title=work.title, name=name)
