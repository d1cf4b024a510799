"""Schedules as a feature."""

from __future__ import annotations

from agent.core.context import TurnContext
from bot.base.background import JobKind
from bot.commands.call import Command
from bot.commands.feature import Feature, Parts, Service
from bot.commands.table import Press
from bot.journey.running_turn import Account
from bot.journey.turn_part import TurnPart
from bot.rights import deeds
from bot.rights.claimed_run import ClaimedRun
from bot.schedules import proposals
from bot.schedules.command import SCHEDULE_WORDS, answer_press, begins_work, schedule_command, zone_command
from bot.schedules.firing import WATCH_JOB, ScheduleClock
from bot.schedules.turns import TurnSchedules
from bot.schedules.watches import WatchJobs
from bot.service.schedule_words import OPTIONS, PREFIX
from bot.storage import personal
from catalogue import N_


def _start(service: Service) -> Parts:
    store, current = service.store, service.current

    def open_turn(job: ClaimedRun, _account: Account) -> TurnPart:
        async def prepare(context: TurnContext) -> None:
            context.schedules = TurnSchedules(store, current, job)

        return TurnPart(prepare)

    return Parts(
        {WATCH_JOB: JobKind(WatchJobs(store, current).check)},
        {"schedules": ScheduleClock(store, current).serve},
        open_turn,
    )


FEATURE = Feature(
    "schedules",
    personal=personal.SCHEDULES,
    commands=(
        Command(
            "schedule",
            N_("work, reminders and watched pages at set times"),
            schedule_command,
            SCHEDULE_WORDS,
            deeds.PLAN_TIMES,
            begins_work,
            rank=130,
        ),
        Command("zone", N_("show or change your time zone"), zone_command, "Europe/Berlin", rank=160),
    ),
    presses={PREFIX: Press("schedule", OPTIONS, proposals.check_press, answer_press)},
    waits=proposals.waiting_proposals,
    start=_start,
)
