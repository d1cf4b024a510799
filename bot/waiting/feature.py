"""Add the list of what waits for a person as a feature, with the buttons of what is closed.

Tell both when the time of what was handed over is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bot.base.background import Effect, JobKind
from bot.commands.call import Command
from bot.commands.feature import Feature, Parts, Service
from bot.commands.table import Press, Pressed
from bot.commands.waits import COMMAND, HOME_JOB, LIST_PREFIX, PREFIX, SHOW_LIST
from bot.database.database import Execute
from bot.storage import hand_overs, personal
from bot.storage.jobs import BackgroundJob
from bot.waiting import hand_over
from bot.waiting.command import DECIDE_WORDS, WAITING_WORDS, decide_command, show_home, show_list, waiting_command
from bot.waiting.questions import waiting_questions
from catalogue import N_, _
from channels.base import Receipt

OVER_FOR_DEPUTY = N_("Your time in place of {person} is over: you do not stand in for them any more.")
OVER_FOR_GIVER = N_("The time is over in which {person} answered in your place. What waits for you waits for you only.")


@dataclass(frozen=True, slots=True)
class HandOverEnds:
    """Handles the jobs that are due when the time of a hand-over is over. `clock` returns the unix time."""

    clock: Callable[[], float] = time.time

    async def end(self, job: BackgroundJob) -> Effect | None:
        """Return what ends it and tells both; nothing happens where one of them has ended it, or it was forgotten."""
        id, now = int(job.arguments["id"]), self.clock()

        def expire(execute: Execute) -> None:
            if (row := hand_overs.expire(execute, id, now)) is None:
                return
            giver, deputy = hand_over.names_of(row)
            hand_over.record(execute, row, "expired", None)
            hand_over.tell(execute, row, row.deputy, lambda: _(OVER_FOR_DEPUTY, person=giver), now=now)
            hand_over.tell(execute, row, row.giver, lambda: _(OVER_FOR_GIVER, person=deputy), now=now)

        return expire


def refuse_listed(_execute: Execute, _pressed: Pressed) -> Receipt:
    """Return the receipt of a press on what waits no longer: one that counts went to its question (`redirect`)."""
    return Receipt.DUPLICATE


def refuse_in_group(_execute: Execute, pressed: Pressed) -> Receipt | None:
    """Return the receipt of a press that would show a list where others read it."""
    return None if pressed.click.private else Receipt.IGNORED


def start(service: Service) -> Parts:
    """Return the jobs that show the list on the bot's own page, and end what was handed over."""
    jobs = {HOME_JOB: JobKind(partial(show_home, service)), hand_over.ENDS_JOB: JobKind(HandOverEnds().end)}
    return Parts(jobs)


FEATURE = Feature(
    "waiting",
    personal=personal.WAITING,
    commands=(
        Command(COMMAND, N_("all that waits for you"), waiting_command, WAITING_WORDS, rank=135),
        Command("approve", N_("approve the call that waits here"), decide_command, DECIDE_WORDS, rank=136),
        Command("deny", N_("deny the call that waits here"), decide_command, DECIDE_WORDS, rank=137),
    ),
    presses={
        PREFIX: Press("waiting", (), refuse_listed),
        LIST_PREFIX: Press("waiting", (SHOW_LIST,), refuse_in_group, lambda call, _pressed: show_list(call)),
        hand_over.PREFIX: Press(
            "hand over", hand_over.OPTIONS, hand_over.refuse_press, hand_over.run_press, has_names=True
        ),
    },
    waits=waiting_questions,
    start=start,
)
