"""Add what each turn used of models, tools and skills to the sums of the day, as a feature.

Add what a run used to the sums of the day, within the transaction that ends it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from agent.outcomes import CallOutcome, Used
from agent.spending import TURN
from bot.commands.feature import Feature, Parts, Service
from bot.database.database import Execute
from bot.database.states import RunState
from bot.journey.running_turn import Account
from bot.journey.turn_part import EndedTurn, OutboxRow, TurnPart
from bot.rights.claimed_run import ClaimedRun
from bot.service.outcome_records import Counted, add_up, key_of_call, key_of_part, sum_call
from bot.storage import personal
from bot.storage.outcomes import OutcomeKey, OutcomeSums, add_outcomes, day_of, keep_parts
from bot.storage.usage import RequestPart


def record_run(
    execute: Execute,
    run: int,
    parts: Sequence[RequestPart],
    state: RunState,
    noted: Sequence[CallOutcome],
    skills: Iterable[str],
    now: float,
) -> None:
    """Add a run that ends in this transaction: the model calls of its request (`parts`), the calls that were `noted`,
    and the `skills` that people named in their messages.

    One that waits for an answer is no whole request yet: its model calls count, the run that follows is the request.
    """
    used = dict.fromkeys(key_of_call(each) for each in noted if each.used != Used.MODEL)
    used |= dict.fromkeys(OutcomeKey(Used.SKILL, name) for name in skills)
    requests = [(key, OutcomeSums(requests=1)) for key in used]
    if state is not RunState.WAITING:
        requests += _requests_of(parts)
    calls = (
        (key_of_part(each), OutcomeSums(calls=each.calls, seconds=each.seconds, cost=each.cost))
        for each in parts
        if each.this
    )
    sums = add_up(chain(requests, calls, map(sum_call, noted)))
    add_outcomes(execute, day_of(now), sums.items())
    judged = dict.fromkeys(key_of_part(each) for each in parts if each.kind == TURN)
    keep_parts(execute, run, [*judged, *used])


def record_part(execute: Execute, noted: Sequence[CallOutcome], now: float) -> None:
    """Add the calls of tools and skills, and the failed ones of models, of a run that a later process continues."""
    add_outcomes(execute, day_of(now), add_up(map(sum_call, noted)).items())


def _requests_of(parts: Sequence[RequestPart]) -> Iterator[Counted]:
    """Yield one request for each role and model."""
    for key in dict.fromkeys(map(key_of_part, parts)):
        yield key, OutcomeSums(requests=1)


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
