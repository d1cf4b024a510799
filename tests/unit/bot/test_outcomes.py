"""Outcomes over real rows: what a run adds, a request with a question, thumbs that come and go, proposals."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from agent.messages import Author, Message, Origin, Thread
from agent.outcomes import CallError, CallOutcome, Used
from agent.settings.models import ModelSettings
from agent.settings.sections import ModelRoles
from agent.settings.subagents import KindSettings, NamedAgentSettings, SubagentSettings
from agent.spending import ModelCall
from bot.config.schema import Config
from bot.database.database import Database, Execute
from bot.database.migrate import migrate_database
from bot.database.states import RunState
from bot.outcomes.recording import record_part, record_run
from bot.service.model_comparison import cost_ratio, find_cheaper, share_difference, wilson
from bot.service.model_proposals import describe, find_proposals, present_models
from bot.service.outcome_records import record_job
from bot.storage import feedback, personal, retention, runs, usage
from bot.storage.outcomes import OUTCOME_DAYS, OutcomeKey, OutcomeSums, read_outcomes
from bot.storage.request_costs import request_parts
from bot.storage.usage import Payer, PricedCall
from tests.support.rehearsed_database import rehearsed_database

THREAD = Thread("telegram", "bot", "5")
JANE = Author("42", "Jane")
LEAD = OutcomeKey(Used.MODEL, "main", "lead")
BASH = OutcomeKey(Used.TOOL, "bash")
DAY = 86400.0


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    migrate_database(tmp_path / "fawn.db")
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
    assert models[LEAD] == OutcomeSums(1, 3, 2, 5.0, 400, 400.0**2, errors={CallError.RATE: 1, CallError.NETWORK: 1}), (
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
    assert (sums.requests, sums.calls, sums.cost, sums.squares) == (2, 3, 450, 400.0**2 + 50.0**2)


async def test_an_unknown_price_is_said_and_not_zero(store: Database) -> None:
    await end(store, 1, model_call(cost=None), model_call())
    await end(store, 2, model_call())
    sums = (await found(store))[LEAD]
    assert (sums.requests, sums.unpriced, sums.cost) == (2, 1, 200)


async def test_thumbs_count_for_what_answered_until_they_are_taken_back(store: Database) -> None:
    noted = (CallOutcome(Used.TOOL, "bash"),)
    await end(store, 1, model_call(), model_call("tiny", kind="summary"), noted=noted)

    async def thumbs(key: OutcomeKey) -> tuple[int, int]:
        sums = (await found(store, key.used))[key]
        return sums.up, sums.down

    async def rate(value: str, at: float, who: Author = JANE) -> None:
        await store.run(lambda execute: feedback.record_feedback(execute, 1, who, value, at))

    await rate("up", 1.0)
    await rate("up", 2.0)
    assert (await thumbs(LEAD), await thumbs(BASH)) == ((1, 0), (1, 0)), "once, however often it is said"
    assert await thumbs(OutcomeKey(Used.MODEL, "tiny", "summary")) == (0, 0), "nobody judges a summary"
    await rate("up", 3.0, Author("7", "Eve"))
    await rate("down", 4.0)
    assert await thumbs(LEAD) == (1, 1)
    await rate("up", 3.5)
    assert await thumbs(LEAD) == (1, 1), "an older event changes nothing"
    await store.run(lambda execute: feedback.remove_feedback(execute, 1, JANE, "down", 5.0))
    assert await thumbs(LEAD) == (1, 0)


async def test_a_thumb_counts_on_the_day_of_the_answer(store: Database) -> None:
    long_ago = time.time() - 40 * DAY
    await end(store, 1, model_call(), at=long_ago)
    await store.run(lambda execute: feedback.record_feedback(execute, 1, JANE, "up", time.time()))
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


# ------------------------------------------------------------ statistics


def sums_of(costs: list[int], up: int, down: int, failed: int = 0) -> OutcomeSums:
    squares = float(sum(cost * cost for cost in costs))
    calls = 3 * len(costs)
    return OutcomeSums(len(costs), calls, failed, 1.0, sum(costs), squares, 0, up, down)


DEAR = sums_of([1000, 1400, 900, 700] * 15, up=50, down=4)
CHEAP = sums_of([600, 700, 500, 400] * 15, up=49, down=5)


def test_a_cheaper_model_with_the_same_thumbs_is_found() -> None:
    found = find_cheaper("lead", "a", {"a": DEAR, "b": CHEAP}, ["a", "b"])
    assert found
    assert (found.other, round(found.saved, 2)) == ("b", 0.45)
    assert 0.3 < found.least < found.saved < found.most < 0.6


@pytest.mark.parametrize(
    "other",
    [
        replace(CHEAP, requests=29),
        replace(CHEAP, up=18, down=1),
        replace(CHEAP, unpriced=1),
        replace(CHEAP, up=40, down=14),
        replace(CHEAP, failed=30),
        replace(CHEAP, cost=0, squares=0.0),
        sums_of([900, 1300, 800, 700] * 15, up=50, down=4),
        sums_of([100] * 59 + [30_000], up=50, down=4),
    ],
    ids=["few requests", "few thumbs", "unknown price", "worse", "fails", "free", "hardly cheaper", "one dear request"],
)
def test_without_enough_evidence_nothing_is_proposed(other: OutcomeSums) -> None:
    assert find_cheaper("lead", "a", {"a": DEAR, "b": other}, ["a", "b"]) is None


def test_only_configured_models_are_proposed_and_only_against_the_present_one() -> None:
    assert find_cheaper("lead", "a", {"a": DEAR, "b": CHEAP}, ["a"]) is None
    assert find_cheaper("lead", "c", {"a": DEAR, "b": CHEAP}, ["a", "b", "c"]) is None
    assert find_cheaper("lead", "b", {"a": DEAR, "b": CHEAP}, ["a", "b"]) is None


def test_the_intervals_are_those_of_the_books() -> None:
    """Wilson's for 15 of 148 and Newcombe's for 56 of 70 against 48 of 80 (Newcombe 1998, table II)."""
    assert wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-4)
    assert share_difference(56, 70, 48, 80) == pytest.approx((0.0524, 0.3339), abs=5e-4)
    assert (wilson(0, 0), share_difference(1, 1, 0, 0)) == ((0.0, 1.0), (-1.0, 1.0))


def test_the_interval_of_the_cost_holds_the_truth_19_of_20_times() -> None:
    """Costs of requests are skewed: most are small, a few are large."""
    dice, hits = random.Random(3), 0
    for _ in range(400):
        before = [round(1000 * dice.lognormvariate(0, 0.8)) for _ in range(60)]
        after = [round(700 * dice.lognormvariate(0, 0.8)) for _ in range(60)]
        ratio = cost_ratio(sums_of(before, 1, 1), sums_of(after, 1, 1))
        assert ratio
        hits += ratio[1] <= 0.7 <= ratio[2]
    assert 0.91 <= hits / 400 <= 0.98


def test_a_proposal_names_the_setting_of_its_role() -> None:
    config = Config(
        models=(ModelSettings("a"), ModelSettings("b")),
        roles=ModelRoles(),
        subagents=SubagentSettings(kinds=(KindSettings("research", model="b"),)),
        agents=(NamedAgentSettings("helper"),),
    )
    assert present_models(config) == {
        "lead": "a", "general-purpose": "a", "bash": "a", "research": "b", "helper": "a"
    }  # fmt: skip
    sums = {OutcomeKey(Used.MODEL, name, role): each for role in ("lead", "helper", "research") for name, each in
            {"a": DEAR, "b": CHEAP}.items()}  # fmt: skip
    proposals = [describe(each, config) for each in find_proposals(sums, config)]
    assert len(proposals) == 2, "research has the cheap one"
    assert proposals[0] == (
        "In the role `lead`, `b` cost 45 % less a request than `a` in the last 30 days (95 % interval: 40 to 49 %):"
        " $0.0006 in 60 requests, $0.0010 in 60. People gave it 👍 for 49 of 54 answers that they judged, and `a` for"
        " 50 of 54. They did not get the same requests, so try it first. To change it, set `roles.lead` to `b`; I"
        " change nothing by myself."
    )
    assert "set `model` of `helper` in `agents` to `b`" in proposals[1]
