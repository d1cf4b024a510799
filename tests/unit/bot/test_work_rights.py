"""Rights when a turn takes what people wrote: messages and answers that waited longer than the right to give them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.blocks import Ask
from agent.messages import Author, Kind, Message, Origin, Thread
from agent.spending import ModelCall
from bot.config.schema import AccessConfig, ServiceLimits
from bot.config.spending import BudgetConfig, TokenCount
from bot.config.team import Right, RoleAssignment, RoleConfig, TeamConfig
from bot.database.database import Database
from bot.database.states import RunState
from bot.journey import claims
from bot.journey.inbox import longest_wait
from bot.rights.access import AccessPolicy
from bot.rights.budgets import StandingBudgets
from bot.rights.claimed_run import ClaimedRun, RunEnding
from bot.storage.usage import Payer, PricedCall, record_calls
from tests.support.current_config import OPEN_ACCESS, current_of
from tests.support.idle_turns import IDLE_TURNS
from tests.support.reception import open_inbox
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

GROUP = Thread("telegram", "1", "-5", "7")  # where everybody steers
JANE, EVE = Author("42", "Jane"), Author("78", "Eve")
LONGEST = longest_wait(ServiceLimits())
EVE_READS = AccessPolicy({"telegram": AccessConfig(open=True, roles=(RoleAssignment("viewer", ("78",)),))})

EVE_IS_GUEST = AccessPolicy(
    {"telegram": AccessConfig(open=True, operators=("42",), roles=(RoleAssignment("guest", ("78",)),))},
    TeamConfig(roles=(RoleConfig("guest", (Right.TALK,)),)),
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as made:
        yield made


async def receive(store: Database, author: Author, text: str, **more: object) -> None:
    inbox = open_inbox(store, current_of(telegram=AccessConfig(open=True)), IDLE_TURNS)
    message = Message(GROUP, f"k:{text}", text, author, text, time.time(), origin=Origin.PERSON)
    await inbox.receive([replace(message, **more)])  # type: ignore[arg-type]  # fields by name


async def claim(store: Database, access: AccessPolicy = OPEN_ACCESS) -> list[ClaimedRun]:
    return await store.run(lambda execute: claims.claim_conversations(execute, access, "me", time.time(), LONGEST, 10))


async def read(store: Database, sql: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in await store.run(lambda execute: execute(sql, {}))]


async def test_of_two_authors_only_the_one_who_may_is_read(store: Database) -> None:
    await receive(store, JANE, "one")
    await receive(store, EVE, "two")
    [job] = await claim(store, EVE_READS)
    assert [message.text for message in job.messages] == ["one"]
    assert await read(store, "SELECT people FROM runs") == [("42",)]
    [(notice,)] = await read(store, "SELECT CAST(payload AS TEXT) FROM outbox")
    assert "Your role here is **viewer**" in str(notice)


async def test_a_queued_run_loses_the_messages_of_others_who_may_not_any_more(store: Database) -> None:
    await receive(store, JANE, "one")
    await receive(store, EVE, "two")
    [queued] = await store.run(
        lambda execute: claims.queue_conversations(execute, OPEN_ACCESS, time.time() + 2, LONGEST, 1.5)
    )
    assert len(queued.messages) == 2
    [job] = await claim(store, EVE_READS)
    assert (job.run, [message.text for message in job.messages]) == (queued.run, ["one"])
    assert await read(store, "SELECT people FROM runs") == [("42",)]


async def test_steering_of_a_person_who_may_not_any_more_is_not_read(store: Database) -> None:
    await receive(store, JANE, "one")
    [job] = await claim(store)
    await receive(store, EVE, "rather this")
    taken, waiting = await store.run(
        lambda execute: claims.take_steering(execute, EVE_READS, job, time.time(), LONGEST)
    )
    assert (taken, waiting) == ([], False)
    assert await read(store, "SELECT state, error FROM inbox WHERE key='k:rather this'") == [(1, "stranger")]


async def test_who_steers_a_turn_bounds_its_rights(store: Database) -> None:
    await receive(store, JANE, "one")
    [job] = await claim(store, EVE_IS_GUEST)
    await receive(store, EVE, "rather this")
    await store.run(lambda execute: claims.take_steering(execute, EVE_IS_GUEST, job, time.time(), LONGEST))
    assert await read(store, "SELECT people FROM runs") == [("42 78",)]
    await store.run(claims.release_stale_claims)
    [again] = await claim(store, EVE_IS_GUEST)
    assert (again.requester, [role.name for role in again.roles]) == (JANE.id, ["operator", "guest"])


async def test_an_answer_whose_author_may_not_give_it_any_more_opens_the_question_again(store: Database) -> None:
    await receive(store, JANE, "one")
    [job] = await claim(store)
    asks = (Ask("q", "Which?", ("red", "blue")),)
    ending = RunEnding(RunState.WAITING, asks)
    await store.run(lambda execute: claims.finish_run(execute, job, ending, time.time()))
    await receive(store, EVE, "red", kind=Kind.CLICK, target="q", key="click of Eve")
    assert await read(store, "SELECT state, answer FROM questions") == [("answered", "red")]
    assert await claim(store, EVE_READS) == []
    assert await read(store, "SELECT state, answer, answered_by FROM questions") == [("open", "", "")]
    await receive(store, JANE, "blue", kind=Kind.CLICK, target="q", key="click of Jane")
    [resumed] = await claim(store, EVE_READS)
    assert [answer.text for answer in resumed.answers] == ["blue"]


POOR = AccessPolicy(
    {"telegram": AccessConfig(open=True)},
    budgets=StandingBudgets.of([BudgetConfig("person", tokens=TokenCount(10))], ""),
)


async def spend(store: Database, person: Author) -> None:
    call = PricedCall(ModelCall("lead", "m", "turn", 10, 0, 0, 0, 0.1, time.time()), None, "")
    await store.run(lambda execute: record_calls(execute, Payer(0, "", GROUP, person.id), [call]))


async def test_who_used_up_a_budget_does_not_steer_on_that_of_another(store: Database) -> None:
    await receive(store, JANE, "one")
    [job] = await claim(store, POOR)
    await spend(store, EVE)
    await receive(store, JANE, "two")
    await receive(store, EVE, "rather this")
    await receive(store, JANE, "three")
    taken, waiting = await store.run(lambda execute: claims.take_steering(execute, POOR, job, time.time(), LONGEST))
    assert ([message.text for message in taken], waiting) == (["two"], False)
    await store.run(lambda execute: claims.finish_run(execute, job, RunEnding(RunState.DONE), time.time()))
    [next_job] = await claim(store, POOR)
    assert (next_job.requester, [message.text for message in next_job.messages]) == (EVE.id, ["rather this"])


@pytest.mark.parametrize("poor", [JANE, EVE])
async def test_two_authors_have_a_run_each_if_one_cannot_pay(store: Database, poor: Author) -> None:
    """Otherwise, one works on the other's budget, or the other's request is refused with it."""
    await spend(store, poor)
    await receive(store, JANE, "one")
    await receive(store, EVE, "two")
    [job] = await claim(store, POOR)
    assert (job.requester, [message.text for message in job.messages]) == (JANE.id, ["one"])
    await store.run(lambda execute: claims.finish_run(execute, job, RunEnding(RunState.DONE), time.time()))
    [job] = await claim(store, POOR)
    assert (job.requester, [message.text for message in job.messages]) == (EVE.id, ["two"])


async def test_who_has_a_request_repeated_pays_for_it(store: Database) -> None:
    await spend(store, JANE)
    await receive(store, JANE, "again", resent_by=EVE.id)
    await receive(store, EVE, "and this")
    [job] = await claim(store, POOR)
    assert (job.requester, job.payer) == (JANE.id, EVE.id)
    assert [message.text for message in job.messages] == ["again", "and this"], "both are on Eve's budget"
    await store.run(lambda execute: claims.finish_run(execute, job, RunEnding(RunState.DONE), time.time()))
    await spend(store, EVE)
    await receive(store, EVE, "rather this")
    await receive(store, JANE, "mine", resent_by=EVE.id)
    [job] = await claim(store, POOR)
    assert job.payer == EVE.id
