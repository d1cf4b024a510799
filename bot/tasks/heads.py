"""What a post says of itself: the number and title of the task or schedule that worked, and whose it is."""

from __future__ import annotations

from dataclasses import replace

from agent.blocks import Final
from bot.journey.claimed_run import ClaimedRun
from bot.journey.turn_part import EndedTurn
from bot.service.plain_text import plain_line
from bot.storage.database import Execute
from catalogue import N_, _

HEADS = {  # by what the key of a conversation beside the thread begins with: for its person, and in a shared chat
    "task": (N_("🔧 Task {number}: “{title}”"), N_("🔧 Task {number} for {name}: “{title}”")),
    "schedule": (N_("⏰ Schedule {number}: “{title}”"), N_("⏰ Schedule {number} of {name}: “{title}”")),
}


def present_work(_execute: Execute, ended: EndedTurn, final: Final) -> Final:
    """Put a head above what a background agent or a run of a schedule says or asks."""
    head = _head_of(ended.job)
    return replace(final, text=f"{head}\n\n{final.text}".strip()) if head else final


def _head_of(job: ClaimedRun) -> str:
    kind, _colon, rest = job.conversation.partition(":")
    number = rest.partition(".")[0]
    if kind not in HEADS or not number.isdecimal():
        return ""
    alone, shared = HEADS[kind]
    name = "" if job.who.private else plain_line(job.author.name)
    return _(shared if name else alone, number=number, title=plain_line(job.title), name=name)
