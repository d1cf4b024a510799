"""Processes that share a database: each has a lease, and only what dead ones held is released."""

from __future__ import annotations

import asyncio
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from agent.messages import Author, Message, Origin, Thread
from agent.spending import ModelCall
from bot.base.background import JobWorker
from bot.database import replicas
from bot.database.data_lock import DatabaseInUse
from bot.database.database import Database, Execute, StorageError
from bot.database.dialect import NOW
from bot.database.replicas import FRESH_SECONDS, LEASE_SECONDS, SURE_SECONDS
from bot.database.states import OutboxState, ReplicaState, RunState
from bot.database.wake_ups import Written
from bot.fleet.membership import Replicas
from bot.storage import budgets, conversations, inbox, jobs, outbox, runs, tasks, usage
from bot.storage.budgets import CallHold, CounterKey
from bot.storage.outbox import Holder
from bot.storage.usage import Payer, PricedCall
from tests.fakes.server import until
from tests.support.postgres_sessions import die, opened, register

THREAD = Thread("telegram", "1", "42")


def hold_everything(execute: Execute, owner: str) -> str:
    """Hold one of everything as a process does: a conversation, a row of the outbox, a command, a job, a call."""
    key = conversations.current_conversation(execute, THREAD, 1.0)
    message = Message(THREAD, "k", "1", Author("42", "Jane"), "hello", 1.0, private=True, origin=Origin.PERSON)
    inbox.store_message(execute, message, key, ready=1.0, received=1.0)
    conversations.refresh_pending(execute, key)
    assert conversations.claim_conversation(execute, key, owner)
    outbox.enqueue_notice(execute, THREAD, "words", key="words", now=1.0)
    assert outbox.claim_rows(execute, Holder(owner), 10)
    jobs.enqueue_job(execute, key="job", kind="work", payload={})
    assert jobs.claim_jobs(execute, owner, 9e9, 10)
    task = dict.fromkeys(("kind", "name", "language", "conversation", "title", "what", "follow_up"), "")
    task |= {"channel": "telegram", "person": "42", "thread": str(THREAD), "state": "queued"}
    tasks.add_task(execute, {**task, "key": "task", "guest": 0, "private": 1, "created": 1.0})
    assert tasks.claim_queued(execute, owner, 2.0)
    call = "INSERT INTO usage(run, conversation, agent, model, kind, input, output, cached, reasoning, seconds, at,"
    execute(f"{call} open, owner) VALUES (1, 'c', '', 'm', 'turn', 7, 0, 0, 0, 0, 1, 1, :owner)", {"owner": owner})
    return key


def release(execute: Execute) -> None:
    conversations.release_stale_claims(execute)
    outbox.release_stale_rows(execute)
    jobs.release_stale_jobs(execute)
    usage.close_stale_calls(execute)


def held(execute: Execute) -> dict[str, Any]:
    [row] = execute(
        "SELECT (SELECT owner FROM conversations) AS claim, (SELECT state FROM outbox) AS row,"
        " (SELECT owner FROM jobs) AS job, (SELECT open FROM usage) AS call",
        {},
    )
    return {**dict(row), "lost": len(tasks.lost_tasks(execute))}


async def test_a_start_releases_nothing_of_a_living_process(pair: tuple[Database, Database]) -> None:
    one, two = pair
    await one.run(partial(hold_everything, owner=one.me))
    await two.run(release)
    kept = {"claim": one.me, "row": OutboxState.CLAIMED, "job": one.me, "call": 1, "lost": 0}
    assert await two.run(held) == kept


async def test_what_a_dead_process_held_is_released_by_another(pair: tuple[Database, Database]) -> None:
    one, two = pair
    await one.run(partial(hold_everything, owner=one.me))
    await die(two, one)
    assert await two.run(replicas.forget_dead) == [one.me]
    assert await two.run(replicas.forget_dead) == []
    await two.run(release)
    assert await two.run(held) == {"claim": None, "row": OutboxState.NEW, "job": None, "call": 0, "lost": 1}


async def test_what_a_dead_process_held_of_a_budget_is_given_back_and_nothing_else(
    pair: tuple[Database, Database],
) -> None:
    """Its call counts with its input. A part of what it held came from a plan, and returns there."""
    one, two = pair
    counter = CounterKey("everything", "all", "2026-11-23", 0.0, 9e9)
    payer = Payer(1, "c", THREAD, "42")
    priced = PricedCall(ModelCall("lead", "m", "turn", 7, 0, 0, 0, 0.0, 1.0), 30, "")

    def begin(execute: Execute, owner: str, held: CallHold) -> None:
        budgets.read_counter(execute, counter)
        budgets.hold(execute, counter, usage.open_call(execute, owner, payer, priced), held)

    await one.run(partial(begin, owner=one.me, held=CallHold(100, 10, "c", 60, 6)))
    await two.run(partial(begin, owner=two.me, held=CallHold(200, 20)))
    plan = "INSERT INTO plan_holds(conversation, scope, period, money, taken_money, taken_tokens)"
    values = {"scope": "everything:all", "period": "2026-11-23"}
    await two.run(lambda execute: execute(f"{plan} VALUES ('c', :scope, :period, 40, 60, 6)", values))
    assert await two.run(partial(budgets.read_counter, key=counter)) == (0, 0, 340, 30)
    await two.run(budgets.release_stale_holds)
    assert await two.run(partial(budgets.read_counter, key=counter)) == (0, 0, 340, 30)
    await die(two, one)
    await two.run(budgets.release_stale_holds)
    assert await two.run(partial(budgets.read_counter, key=counter)) == (30, 7, 300, 26)


async def test_a_lease_is_renewed_by_the_clock_of_the_database_and_not_after_its_end(
    pair: tuple[Database, Database],
) -> None:
    one, two = pair
    assert [each.id for each in await two.run(replicas.living)] == sorted([one.me, two.me])
    assert await one.run(partial(replicas.renew, id=one.me))
    [row] = await two.run(
        lambda execute: execute(
            "SELECT until-extract(epoch FROM now()) AS left FROM replicas WHERE id=:id", {"id": one.me}
        )
    )
    assert 0 < row["left"] <= LEASE_SECONDS + 1
    await die(two, one)
    assert [each.id for each in await two.run(replicas.living)] == [two.me]
    assert not await one.run(partial(replicas.renew, id=one.me))


async def test_a_process_that_works_alone_and_those_that_share_keep_each_other_away(url: str) -> None:
    async with opened(url, shared=False) as alone:
        await register(alone, alone=True)
        await alone.run(partial(hold_everything, owner=alone.me))
        with pytest.raises(DatabaseInUse):
            async with opened(url, owner_seconds=0.05):
                pass
    async with opened(url) as one:
        await register(one)  # whatever that process held is released, though its lease has no end
        await one.run(release)
        assert (await one.run(held))["claim"] is None
        with pytest.raises(DatabaseInUse):
            async with opened(url, shared=False, owner_seconds=0.05):
                pass


async def test_a_conversation_that_another_process_claims_meanwhile_is_left(pair: tuple[Database, Database]) -> None:
    one, two = pair
    key = await one.run(partial(hold_everything, owner=one.me))
    assert await two.run(lambda execute: conversations.claim_conversation(execute, key, two.me)) is None


async def test_a_conversation_stays_where_its_files_are_while_that_process_lives(
    pair: tuple[Database, Database],
) -> None:
    one, two = pair
    await one.run(partial(hold_everything, owner=one.me))
    await one.run(lambda execute: execute("UPDATE conversations SET owner=NULL", {}))
    looks = [
        partial(conversations.claimable_conversations, owner=each.me, now=9.0, latest=99.0, limit=5) for each in pair
    ]
    await one.run(partial(replicas.renew, id=one.me))
    assert [len(await one.run(look)) for look in looks] == [1, 0]
    assert await two.run(partial(conversations.earliest_claimable, owner=two.me)) is None
    await die(two, one)
    assert [len(await two.run(look)) for look in looks] == [1, 1]


async def test_a_conversation_does_not_wait_for_a_process_that_has_not_renewed_its_lease_lately(
    pair: tuple[Database, Database],
) -> None:
    """It may be dead: what waits for its files would wait for the end of its lease."""
    one, two = pair
    await one.run(partial(hold_everything, owner=one.me))
    await one.run(lambda execute: execute("UPDATE conversations SET owner=NULL", {}))
    sql = f"UPDATE replicas SET until={NOW}+:left WHERE id=:id"  # noqa: S608 — a constant
    await two.run(lambda execute: execute(sql, {"left": LEASE_SECONDS - FRESH_SECONDS - 0.1, "id": one.me}))
    look = partial(conversations.claimable_conversations, owner=two.me, now=9.0, latest=99.0, limit=5)
    assert len(await two.run(look)) == 1
    assert one.me in [each.id for each in await two.run(replicas.living)]


@pytest.mark.parametrize("state", [ReplicaState.STARTING, ReplicaState.STOPPING])
async def test_a_conversation_does_not_wait_for_a_process_that_begins_or_ends(
    pair: tuple[Database, Database], state: ReplicaState
) -> None:
    """It goes on elsewhere, at once: the others are told."""
    one, two = pair
    heard: list[tuple[Written, str]] = []
    two.follow(heard.extend)
    event = two.listen(Written.MESSAGE)
    await one.run(partial(hold_everything, owner=one.me))
    await one.run(lambda execute: execute("UPDATE conversations SET owner=NULL", {}))
    look = partial(conversations.claimable_conversations, owner=two.me, now=9.0, latest=99.0, limit=5)
    assert await two.run(look) == []
    event.clear()
    await one.run(partial(replicas.enter, id=one.me, state=state))
    assert len(await two.run(look)) == 1
    await until(lambda: (Written.LEASE, "") in heard and event.is_set(), what="the wake-up")


async def test_a_process_that_ends_never_serves_again(pair: tuple[Database, Database]) -> None:
    """Its engine may be ready only then."""
    one, two = pair
    for state in (ReplicaState.STOPPING, ReplicaState.SERVING):
        await one.run(partial(replicas.enter, id=one.me, state=state))
    states = {each.id: each.state for each in await two.run(replicas.living)}
    assert states == {one.me: ReplicaState.STOPPING, two.me: ReplicaState.SERVING}


async def test_files_wait_for_the_process_that_has_them_and_not_for_ever(pair: tuple[Database, Database]) -> None:
    one, two = pair

    def enqueue(execute: Execute) -> None:
        outbox.enqueue_files(execute, THREAD, b"[]", key="files", now=100.0)
        sql = "UPDATE outbox SET host=(SELECT host FROM replicas WHERE id=:id)"
        execute(sql, {"id": one.me})

    await one.run(enqueue)
    claim = partial(outbox.claim_rows, holder=Holder(two.me, shared=True), limit=5)
    assert await two.run(partial(claim, late=200.0)) == []
    await die(two, one)
    assert await two.run(partial(claim, late=50.0)) == []
    assert len(await two.run(partial(claim, late=200.0))) == 1


async def test_what_a_process_writes_wakes_the_readers_of_another(pair: tuple[Database, Database]) -> None:
    one, two = pair
    heard: list[tuple[Written, str]] = []
    two.follow(heard.extend)
    await one.run(lambda execute: jobs.enqueue_job(execute, key="job", kind="work", payload={}))
    await until(lambda: (Written.JOB, "") in heard, what="the wake-up")


async def test_a_reader_looks_by_itself_within_a_second(pair: tuple[Database, Database]) -> None:
    """Whatever became of the notification."""
    one, _two = pair
    event = one.listen(Written.TASK)
    event.clear()
    await asyncio.wait_for(event.wait(), 60)


async def test_a_living_process_releases_what_dies_beside_it(pair: tuple[Database, Database]) -> None:
    one, two = pair
    await one.run(partial(hold_everything, owner=one.me))
    async with Replicas(two, release, lambda: None).kept():
        await die(two, one)
        async with asyncio.timeout(60):
            while (await two.run(held))["claim"]:
                await asyncio.sleep(0.05)
    assert await one.run(replicas.living) == []


async def test_a_process_whose_lease_ended_stops_and_does_not_take_it_again(pair: tuple[Database, Database]) -> None:
    one, two = pair
    lost: list[str] = []
    lease = Replicas(one, release, lambda: lost.append("one"))
    async with lease.kept():
        await until(lambda: lease.is_sure, what="the lease")
        await die(two, one)
        await until(lambda: lost, what="the end")
        assert not lease.is_sure
    assert [each.id for each in await two.run(replicas.living)] == [two.me]


async def test_a_process_whose_lease_is_nearly_over_writes_nothing(pair: tuple[Database, Database]) -> None:
    """Whatever it is: also rows without an owner. It reads, and writes again with its next lease."""
    one, two = pair

    def say(execute: Execute) -> None:
        outbox.enqueue_notice(execute, THREAD, "words", key="words", now=1.0)

    def count(execute: Execute) -> int:
        return len(execute("SELECT 1 FROM outbox", {}))

    def shorten(execute: Execute, left: float) -> None:
        execute(f"UPDATE replicas SET until={NOW}+:left WHERE id=:id", {"left": left, "id": one.me})  # noqa: S608 — a constant

    one.lease = Replicas(one, release, lambda: None)
    await two.run(partial(shorten, left=LEASE_SECONDS - SURE_SECONDS - 0.5))
    with pytest.raises(StorageError):
        await one.run(say)
    assert await one.run(count) == await two.run(count) == 0
    await one.run(partial(replicas.renew, id=one.me))
    await one.run(say)
    assert await two.run(count) == 1


async def test_a_process_that_ends_has_left(pair: tuple[Database, Database]) -> None:
    one, two = pair
    async with Replicas(one, release, lambda: None).kept():
        pass
    assert [each.id for each in await two.run(replicas.living)] == [two.me]


@pytest.mark.slow
async def test_a_process_that_cannot_reach_the_database_stops_before_its_lease_ends(
    pair: tuple[Database, Database], url: str
) -> None:
    from bot.database.postgres_session import connect

    one, two = pair
    lost: list[float] = []
    loop = asyncio.get_running_loop()
    async with Replicas(one, release, lambda: lost.append(loop.time())).kept():
        with closing(connect(url)) as other:
            other.execute("BEGIN; LOCK TABLE replicas IN ACCESS EXCLUSIVE MODE")
            await until(lambda: lost, SURE_SECONDS + 4, "the end")
        assert one.me in [each.id for each in await two.run(replicas.living)]


@pytest.mark.parametrize(
    ("begun", "due", "expected"),
    [(False, None, 0.0), (True, 50.0, 50.0), (True, 5000.0, 160.0)],
    ids=["none", "due", "far"],
)
async def test_a_start_runs_a_recurring_job_only_when_it_is_due(
    pair: tuple[Database, Database], begun: bool, due: float | None, expected: float
) -> None:
    """Also where an earlier version, or a clock that was set back, planned it for a much later time."""
    one, two = pair
    if begun:
        await one.run(lambda execute: jobs.enqueue_job(execute, key="r", kind="r", payload={}, due=due or 0.0))
    for each in pair:
        worker = JobWorker(each, lambda: -1.0 if not begun else 10.0)
        worker.register("r", _no_work, every_seconds=150.0)
        await each.run(worker._claim)
    [row] = await two.run(lambda execute: execute("SELECT due, owner FROM jobs", {}))
    assert (row["due"], row["owner"]) == (expected, None)


async def _no_work(_job: jobs.BackgroundJob) -> None: ...


async def test_a_run_that_may_kill_processes_is_claimed_by_one_without_turns_while_another_serves(
    pair: tuple[Database, Database],
) -> None:
    """No look claims it beside others, nor a message that comes to it."""
    one, two = pair

    def suspect(execute: Execute) -> str:
        key = hold_everything(execute, two.me)
        [row] = inbox.pending_rows(execute, key, 9)
        runs.create_run(execute, row.id, key, row.message, RunState.RUNNING, 1.0, ["42"])
        execute("UPDATE conversations SET owner=NULL, host=''", {})
        return key

    key = await two.run(suspect)
    look = partial(conversations.claimable_conversations, owner=one.me, now=9.0, latest=99.0, limit=5)
    assert len(await one.run(look)) == 1
    await one.run(lambda execute: execute("UPDATE runs SET attempt=2", {}))
    assert await one.run(look) == []
    assert await one.run(partial(conversations.earliest_claimable, owner=one.me)) is None
    at_once = partial(conversations.claim_at_once, key=key, owner=one.me, now=9.0, latest=99.0)
    assert await one.run(at_once) is None
    assert await one.run(partial(runs.next_suspect, owner=one.me)) == key
    assert await one.run(partial(replicas.others_serve, id=one.me))
    await two.run(partial(replicas.enter, id=two.me, state=ReplicaState.STARTING))
    assert not await one.run(partial(replicas.others_serve, id=one.me))
    await die(one, two)
    assert await one.run(partial(replicas.others_serve, id=one.me))
