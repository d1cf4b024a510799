"""Add what a run used to the sums of the day, within the transaction that ends it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from agent.outcomes import CallOutcome, Used
from agent.spending import TURN
from bot.database.database import Execute
from bot.database.states import RunState
from bot.service.outcome_records import Counted, add_up, key_of_call, key_of_part, sum_call
from bot.storage.outcomes import OutcomeKey, OutcomeSums, add_outcomes, day_of, keep_parts
from bot.storage.request_costs import RequestPart


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
    """Yield one request for each role and model, with the square of what all its runs have cost."""
    costs: dict[OutcomeKey, int] = {}
    unpriced: dict[OutcomeKey, int] = {}
    for each in parts:
        key = key_of_part(each)
        costs[key] = costs.get(key, 0) + each.cost
        unpriced[key] = unpriced.get(key, 0) + each.unpriced
    for key, cost in costs.items():
        yield key, OutcomeSums(requests=1, squares=float(cost) ** 2, unpriced=int(unpriced[key] > 0))
