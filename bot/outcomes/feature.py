"""Add what each turn used of models, tools and skills to the sums of the day, as a feature."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bot.commands.feature import Feature, Parts, Service
from bot.database.database import Execute
from bot.journey.running_turn import Account
from bot.journey.turn_part import EndedTurn, OutboxRow, TurnPart
from bot.outcomes.recording import record_part, record_run
from bot.rights.claimed_run import ClaimedRun
from bot.storage import personal


def _start(_service: Service) -> Parts:
    return Parts(turn=_open_turn)


def _open_turn(job: ClaimedRun, account: Account) -> TurnPart:
    skills = {each.skill for each in job.messages if each.skill}

    def end(execute: Execute, ended: EndedTurn) -> Sequence[OutboxRow]:
        record_run(execute, job.run, ended.parts, ended.state, account.meter.outcomes, skills, ended.now)
        return ()

    def suspend(execute: Execute) -> None:
        record_part(execute, account.meter.outcomes, time.time())

    return TurnPart(end=end, suspend=suspend)


FEATURE = Feature("outcomes", personal=personal.OUTCOMES, start=_start)
