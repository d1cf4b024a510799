"""Add what a run, or a background job, used to the sums of the day, within its own transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from agent.context import Meter
from agent.outcomes import CallOutcome, Used
from agent.spending import TURN
from bot.rights.reservations import Budgets
from bot.storage import usage
from bot.storage.database import Execute
from bot.storage.outcomes import OutcomeKey, OutcomeSums, add_outcomes, day_of, keep_parts
from bot.storage.request_costs import RequestPart
from bot.storage.states import RunState
from bot.storage.usage import Payer, PricedCall

Counted = tuple[OutcomeKey, OutcomeSums]


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
    used = dict.fromkeys(_key_of_call(each) for each in noted if each.used != Used.MODEL)
    used |= dict.fromkeys(OutcomeKey(Used.SKILL, name) for name in skills)
    requests = [(key, OutcomeSums(requests=1)) for key in used]
    if state is not RunState.WAITING:
        requests += _requests_of(parts)
    calls = (
        (_key_of_part(each), OutcomeSums(calls=each.calls, seconds=each.seconds, cost=each.cost))
        for each in parts
        if each.this
    )
    sums = add_up(chain(requests, calls, map(_failure_of, noted)))
    add_outcomes(execute, day_of(now), sums.items())
    judged = dict.fromkeys(_key_of_part(each) for each in parts if each.kind == TURN)
    keep_parts(execute, run, [*judged, *used])


def record_job(execute: Execute, calls: Iterable[PricedCall], noted: Sequence[CallOutcome], now: float) -> None:
    """Add the model calls of a background job; each is a request of its own."""
    made = (
        (
            _key_of_part(RequestPart(each.call.agent, each.call.kind, each.call.model, this=1, calls=1)),
            OutcomeSums(
                requests=1,
                calls=1,
                seconds=each.call.seconds,
                cost=each.cost or 0,
                squares=float(each.cost or 0) ** 2,
                unpriced=int(each.cost is None),
            ),
        )
        for each in calls
    )
    add_outcomes(execute, day_of(now), add_up(chain(made, map(_failure_of, noted))).items())


def job_recorder(budgets: Budgets, payer: Payer, meter: Meter) -> Callable[[Execute], None]:
    """Return what records the calls that a background job has made, within the transaction that ends the job: they are
    taken now, for that transaction may be undone, and come again."""
    calls = meter.take_unrecorded()

    def record(execute: Execute) -> None:
        usage.record_calls(execute, payer, map(budgets.price, calls))
        record_job(execute, map(budgets.price, meter.made), meter.outcomes, time.time())

    return record


def record_part(execute: Execute, noted: Sequence[CallOutcome], now: float) -> None:
    """Add the calls of tools and skills, and the failed ones of models, of a run that a later process continues."""
    add_outcomes(execute, day_of(now), add_up(map(_failure_of, noted)).items())


def add_up(counted: Iterable[Counted]) -> Mapping[OutcomeKey, OutcomeSums]:
    """Return the sums of each key."""
    sums: dict[OutcomeKey, OutcomeSums] = {}
    for key, each in counted:
        sums[key] = sums[key] + each if key in sums else each
    return sums


def _requests_of(parts: Sequence[RequestPart]) -> Iterator[Counted]:
    """Yield one request for each role and model, with the square of what all its runs have cost."""
    costs: dict[OutcomeKey, int] = {}
    unpriced: dict[OutcomeKey, int] = {}
    for each in parts:
        key = _key_of_part(each)
        costs[key] = costs.get(key, 0) + each.cost
        unpriced[key] = unpriced.get(key, 0) + each.unpriced
    for key, cost in costs.items():
        yield key, OutcomeSums(requests=1, squares=float(cost) ** 2, unpriced=int(unpriced[key] > 0))


def _failure_of(each: CallOutcome) -> Counted:
    """Return the call of a tool or skill, or the failed one of a model, which the usage has too if it was charged."""
    errors = {each.error: 1} if each.error else {}
    calls = 0 if each.charged else 1
    seconds = 0.0 if each.charged else each.seconds
    return _key_of_call(each), OutcomeSums(calls=calls, failed=len(errors), seconds=seconds, errors=errors)


def _key_of_call(each: CallOutcome) -> OutcomeKey:
    return OutcomeKey(each.used, each.name, each.role)


def _key_of_part(each: RequestPart) -> OutcomeKey:
    return OutcomeKey(Used.MODEL, each.model, each.agent if each.kind == TURN else each.kind)
