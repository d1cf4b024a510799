"""Outcomes over real rows: what a run adds, a request with a question, thumbs that come and go."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from agent.messages import Author, Message, Origin, Thread
from agent.outcomes import CallError, CallOutcome, Used
from agent.spending import ModelCall
from bot.database.database import Database, Execute
from bot.database.states import RunState
from bot.outcomes.feature import record_part, record_run
from bot.service.outcome_records import record_job
from bot.storage import outcomes, personal, retention, runs, usage
from bot.storage.outcomes import OUTCOME_DAYS, OutcomeKey, OutcomeSums, read_outcomes
from bot.storage.usage import Payer, PricedCall, request_parts
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

THREAD = Thread("telegram", "bot", "5")
JANE = Author("42", "Jane")
LEAD = OutcomeKey(Used.MODEL, "main", "lead")
BASH = OutcomeKey(Used.TOOL, "bash")
DAY = 86400.0


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as opened:
        yield opened


def model_call(model: str = "main", agent: str = "lead", kind: str = "turn", cost: int | None = 100) -> PricedCall:
    return PricedCall(ModelCall(agent, model, kind, 10, 1, 0, 0, 2.0, time.time()), cost, "")


async def end(
    store: Database,
    run: int,
    *calls: PricedCall,
    noted: tuple[CallOutcome, ...] = (),
    state: RunState = RunState.DONE,
    skills: tuple[str, ...] = (),
    at: float = 0.0,
) -> None:
    """Let a run of one conversation make these calls and end."""
    now, payer = at or time.time(), Payer(run, "c", THREAD, JANE.id)
    message = Message(THREAD, str(run), str(run), JANE, "hello", 0.0, origin=Origin.PERSON)

    def work(execute: Execute) -> None:
        runs.create_run(execute, run, "c", message, RunState.RUNNING, now)
        usage.record_calls(execute, payer, calls)
        runs.finish_run(execute, run, state, now)
        record_run(execute, run, request_parts(execute, run, "c"), state, noted, skills, now)

    await store.run(work)


async def found(store: Database, used: Used = Used.MODEL, now: float = 0.0) -> Mapping[OutcomeKey, OutcomeSums]:
    return await store.run(lambda execute: read_outcomes(execute, used, now or time.time()))


async def test_a_run_adds_its_calls_by_model_and_role_and_its_tools(store: Database) -> None:
    noted = (
        CallOutcome(Used.MODEL, "main", "lead", CallError.RATE, 1.0),
        CallOutcome(Used.MODEL, "main", "lead", CallError.NETWORK, 1.0, charged=True),
        CallOutcome(Used.TOOL, "bash", seconds=3.0),
        CallOutcome(Used.TOOL, "bash", error=CallError.TIMEOUT, seconds=60.0),
        CallOutcome(Used.SKILL, "pdf", error=CallError.EXIT_CODE, seconds=1.0),
    )
    calls = (model_call(), model_call(cost=300), model_call("small", "research"), model_call("tiny", kind="summary"))
    await end(store, 1, *calls, noted=noted, skills=("pdf", "chart"))
    models = await found(store)
    assert models[LEAD] == OutcomeSums(1, 3, 2, 5.0, 400, errors={CallError.RATE: 1, CallError.NETWORK: 1}), (
        "the failed call that was charged is one of the usage"
    )
    assert models[OutcomeKey(Used.MODEL, "small", "research")].calls == 1
    assert models[OutcomeKey(Used.MODEL, "tiny", "summary")].requests == 1
    [(key, tool)] = (await found(store, Used.TOOL)).items()
    assert (key, tool.requests, tool.calls, tool.failed, tool.errors) == (BASH, 1, 2, 1, {CallError.TIMEOUT: 1})
    skills = {
        key.name: (each.requests, each.calls, each.failed) for key, each in (await found(store, Used.SKILL)).items()
    }
    assert skills == {"pdf": (1, 1, 1), "chart": (1, 0, 0)}


async def test_a_question_does_not_make_two_requests_of_one(store: Database) -> None:
    await end(store, 1, model_call(cost=100), state=RunState.WAITING)
    waiting = (await found(store))[LEAD]
    assert (waiting.requests, waiting.calls, waiting.cost) == (0, 1, 100)
    await end(store, 2, model_call(cost=300))
    await end(store, 3, model_call(cost=50))
    sums = (await found(store))[LEAD]
    assert (sums.requests, sums.calls, sums.cost) == (2, 3, 450)


async def test_thumbs_count_for_what_answered_until_they_are_taken_back(store: Database) -> None:
    noted = (CallOutcome(Used.TOOL, "bash"),)
    await end(store, 1, model_call(), model_call("tiny", kind="summary"), noted=noted)

    async def thumbs(key: OutcomeKey) -> tuple[int, int]:
        sums = (await found(store, key.used))[key]
        return sums.up, sums.down

    async def rate(value: str, at: float, who: Author = JANE) -> None:
        await store.run(lambda execute: outcomes.record_feedback(execute, 1, who, value, at))

    await rate("up", 1.0)
    await rate("up", 2.0)
    assert (await thumbs(LEAD), await thumbs(BASH)) == ((1, 0), (1, 0)), "once, however often it is said"
    assert await thumbs(OutcomeKey(Used.MODEL, "tiny", "summary")) == (0, 0), "nobody judges a summary"
    await rate("up", 3.0, Author("7", "Eve"))
    await rate("down", 4.0)
    assert await thumbs(LEAD) == (1, 1)
    await rate("up", 3.5)
    assert await thumbs(LEAD) == (1, 1), "an older event changes nothing"
    await store.run(lambda execute: outcomes.remove_feedback(execute, 1, JANE, "down", 5.0))
    assert await thumbs(LEAD) == (1, 0)


async def test_a_thumb_counts_on_the_day_of_the_answer(store: Database) -> None:
    long_ago = time.time() - 40 * DAY
    await end(store, 1, model_call(), at=long_ago)
    await store.run(lambda execute: outcomes.record_feedback(execute, 1, JANE, "up", time.time()))
    assert await found(store) == {}, "neither that day nor the thumb is of this month"
    assert (await found(store, now=long_ago))[LEAD].up == 1


async def test_a_month_is_kept(store: Database) -> None:
    now = time.time()
    await end(store, 1, model_call(), noted=(CallOutcome(Used.TOOL, "bash", error=CallError.FAULT),), at=now)
    await end(store, 2, model_call(), at=now - OUTCOME_DAYS * DAY)
    for table in personal.OUTCOMES:
        await store.run(partial(retention.delete_finished, table=table, before=now + DAY, limit=100))
    rows = await store.run(lambda execute: execute("SELECT DISTINCT day FROM outcomes", {}))
    assert [int(row["day"]) for row in rows] == [int(now // DAY)]


async def test_a_job_and_an_interrupted_run_count_without_a_request_of_a_person(store: Database) -> None:
    def work(execute: Execute) -> None:
        record_job(execute, [model_call("tiny", kind="title")], [], time.time())
        record_part(execute, [CallOutcome(Used.TOOL, "bash", error=CallError.SANDBOX)], time.time())

    await store.run(work)
    assert (await found(store))[OutcomeKey(Used.MODEL, "tiny", "title")].requests == 1
    tool = (await found(store, Used.TOOL))[BASH]
    assert (tool.requests, tool.calls, tool.failed) == (0, 1, 1)
