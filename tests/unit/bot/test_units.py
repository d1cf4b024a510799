"""Units of work keep nothing outside of their transaction, and compute little in it."""

from __future__ import annotations

import ast
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import bot
from agent.messages import Author, Kind, Message, Origin, Thread
from agent.settings.models import ModelPrice, ModelSettings
from agent.spending import ModelCall, PlannedCall
from bot.budgets.command import CHART_NAME, ChartJobs
from bot.config.schema import AccessConfig, ChannelConfig, Config
from bot.config.spending import BudgetConfig, Money
from bot.database.database import Database, Execute
from bot.rights.current import Current
from bot.rights.reservations import BudgetReservation, Budgets
from bot.storage import budgets as stored
from bot.storage import inbox, jobs, outbox, usage
from bot.storage.outbox import Holder
from bot.storage.usage import Payer, PricedCall
from tests.support.reception import command_runner, command_service
from tests.support.rehearsed_database import MAX_UNIT_SECONDS, SlowUnit, make_empty_database, rehearsed_database

HOME = Thread("telegram", "bot", "7")
PAYER = Payer(1, f"{HOME}#1", HOME, "7")
MODEL = ModelSettings("main", model="any", price=ModelPrice(input=1.0, output=2.0, cached=0.1))
CHANGES = {"add", "append", "clear", "discard", "extend", "note", "pop", "popleft", "remove", "set", "update"}
ALLOWED = {
    ("rates.py", "read_messages"),  # copies rows of earlier transactions; the same ones if it comes again
}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as made:
        yield made


def outer_changes(function: ast.FunctionDef) -> Iterator[str]:
    """Yield what a unit of work changes of an object that is not its own."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (ast.unparse(each) for each in targets if isinstance(each, ast.Attribute))
        elif isinstance(node, ast.Nonlocal | ast.Global):
            yield ast.unparse(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if node.func.attr in CHANGES and isinstance(owner, ast.Attribute) and ast.unparse(owner) != "call.after":
                yield ast.unparse(node)


def test_no_unit_of_work_changes_an_object_outside() -> None:
    """It runs on the database's thread, and its transaction may be undone."""
    found = {
        (path.name, node.name): changes
        for path in Path(bot.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef) and "execute" in {each.arg for each in node.args.args}
        if (changes := [*outer_changes(node)])
    }
    assert {*found} == ALLOWED, found


async def test_a_unit_runs_twice_in_the_tests_and_only_once_counts(store: Database) -> None:
    seen: list[int] = []

    def work(execute: Execute) -> int:
        jobs.enqueue_job(execute, key=f"j{len(seen)}", kind="k", payload={})
        seen.append(1)
        return len(execute("SELECT key FROM jobs", {}))

    assert await store.run(work) == 1
    assert len(seen) == 2


async def test_a_unit_that_computes_for_long_fails_the_tests(store: Database) -> None:
    def work(_execute: Execute) -> None:
        end = time.thread_time() + 1.5 * MAX_UNIT_SECONDS
        while time.thread_time() < end:
            pass

    with pytest.raises(SlowUnit):
        await store.run(work)


async def test_counters_of_budgets_are_summed_again_also_after_a_rollback(store: Database) -> None:
    def config() -> Config:
        return Config(models=(MODEL,), budgets=(BudgetConfig("everything", money=Money(10_000)),), time_zone="UTC")

    current = Current(config())
    budgets = Budgets(store, current)

    async def reserve() -> None:
        gate = budgets.gate(PAYER)
        assert gate
        held = await gate.reserve(PlannedCall("lead", "main", "turn", 100, 50))
        assert isinstance(held, BudgetReservation)
        await held.cancel()

    async def money() -> int:
        [row] = await store.run(lambda execute: execute("SELECT money FROM budgets", {}))
        return int(row["money"])

    await reserve()
    call = PricedCall(ModelCall("lead", "main", "turn", 10, 10, 0, 0, 0.1, time.time()), 30, "")
    await store.run(lambda execute: usage.record_calls(execute, PAYER, [call]))
    await store.run(stored.forget_sums)
    await reserve()
    assert await money() == 30
    await store.run(lambda execute: execute("UPDATE budgets SET money=7", {}))
    await reserve()
    assert await money() == 7, "it is kept, not summed up"
    current.config = config()
    await reserve()
    assert await money() == 30


async def test_the_chart_of_usage_is_drawn_outside_of_a_transaction(store: Database, tmp_path: Path) -> None:
    config = Config(channels=(ChannelConfig("telegram", None, AccessConfig(open=True)),), data_dir=tmp_path)
    current, now = Current(config), time.time()
    call = PricedCall(ModelCall("lead", "main", "turn", 10, 10, 0, 0, 0.1, now), 30, "")
    asked = Message(HOME, "k", "1", Author("7", "Jane"), "usage", now, Kind.COMMAND, private=True, origin=Origin.PERSON)
    await store.run(lambda execute: usage.record_calls(execute, PAYER, [call]))
    await store.run(lambda execute: inbox.store_message(execute, asked, f"{HOME}#1", ready=now, received=now))
    service = command_service(current)
    [row] = await store.run(lambda execute: inbox.pending_commands(execute, 5))
    await command_runner(store, service)._answer_command(row)
    assert not (tmp_path / "spool").exists()
    [job] = await store.run(lambda execute: jobs.claim_jobs(execute, "me", now + 1, 5))
    effect = await ChartJobs(store, current).draw(job)
    assert effect
    await store.run(effect)
    [copy] = (tmp_path / "spool").glob(f"usage-*/{CHART_NAME}")
    assert copy.read_bytes().startswith(b"\x89PNG")
    items = await store.run(lambda execute: outbox.claim_rows(execute, Holder("me"), 5))
    assert [str(copy).encode() in item.payload for item in items] == [False, True]
