"""Sum what models, tools and skills did: in background jobs here, in runs in `bot.outcomes`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from agent.outcomes import CallOutcome, Used
from agent.spending import TURN, Meter
from bot.database.database import Execute
from bot.rights.reservations import Budgets
from bot.storage import usage
from bot.storage.outcomes import OutcomeKey, OutcomeSums, add_outcomes, day_of
from bot.storage.usage import Payer, PricedCall, RequestPart

Counted = tuple[OutcomeKey, OutcomeSums]


def record_job(execute: Execute, calls: Iterable[PricedCall], noted: Sequence[CallOutcome], now: float) -> None:
    """Add the model calls of a background job; each is a request of its own."""
    made = (
        (
            key_of_part(RequestPart(each.call.agent, each.call.kind, each.call.model, this=1, calls=1)),
            OutcomeSums(
                requests=1,
                calls=1,
                seconds=each.call.seconds,
                cost=each.cost or 0,
            ),
        )
        for each in calls
    )
    add_outcomes(execute, day_of(now), add_up(chain(made, map(sum_call, noted))).items())


def job_recorder(budgets: Budgets, payer: Payer, meter: Meter) -> Callable[[Execute], None]:
    """Return what records the calls that a background job has made, within the transaction that ends the job: they are
    taken now, for that transaction may be undone, and come again."""
    calls = meter.take_unrecorded()

    def record(execute: Execute) -> None:
        usage.record_calls(execute, payer, map(budgets.price, calls))
        record_job(execute, map(budgets.price, meter.made), meter.outcomes, time.time())

    return record


def add_up(counted: Iterable[Counted]) -> Mapping[OutcomeKey, OutcomeSums]:
    """Return the sums of each key."""
    sums: dict[OutcomeKey, OutcomeSums] = {}
    for key, each in counted:
        sums[key] = sums[key] + each if key in sums else each
    return sums


def sum_call(each: CallOutcome) -> Counted:
    """Return the call of a tool or skill, or the failed one of a model, which the usage has too if it was charged."""
    errors = {each.error: 1} if each.error else {}
    calls = 0 if each.charged else 1
    seconds = 0.0 if each.charged else each.seconds
    return key_of_call(each), OutcomeSums(calls=calls, failed=len(errors), seconds=seconds, errors=errors)


def key_of_call(each: CallOutcome) -> OutcomeKey:
    """Return under which key a call counts."""
    return OutcomeKey(each.used, each.name, each.role)


def key_of_part(each: RequestPart) -> OutcomeKey:
    """Return under which key the model calls of a part of a request count."""
    return OutcomeKey(Used.MODEL, each.model, each.agent if each.kind == TURN else each.kind)
