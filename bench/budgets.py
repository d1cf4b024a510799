"""What budgets cost a model call, and what fair shares cost a claim: `python -m bench.budgets --folder DISK`."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import uvloop

from agent.messages import Thread
from agent.settings.models import ModelPrice, ModelSettings
from agent.spending import ModelCall, PlannedCall
from bot.config.schema import Config
from bot.config.spending import BudgetConfig, Money
from bot.database.database import Database, Execute
from bot.database.migrate import migrate_database
from bot.rights.current import Current
from bot.rights.reservations import BudgetReservation, Budgets
from bot.storage import conversations
from bot.storage.usage import Payer

CALLS = 400
THREAD = Thread("telegram", "bot", "1")
PLANNED = PlannedCall("lead", "main", "turn", 5000, 1000)
CALL = ModelCall("lead", "main", "turn", 5000, 500, 0, 0, 1.0, 0.0)
MUCH = Money(10**12)
BUDGETS = (
    BudgetConfig("person", period="day", money=MUCH),
    BudgetConfig("person", money=MUCH),
    BudgetConfig("chat", money=MUCH),
    BudgetConfig("everything", money=MUCH),
)


async def measure_calls(store: Database, tasks: int) -> None:
    """Print the time of reservation and settlement together, by `tasks` at once."""
    model = ModelSettings("main", price=ModelPrice(1.0, 2.0))
    budgets = Budgets(store, Current(Config(models=(model,), budgets=BUDGETS)))
    took: list[float] = []

    async def work(number: int) -> None:
        gate = budgets.gate(Payer(number, f"{THREAD}#1", THREAD, str(number % 10)))
        for _ in range(CALLS // tasks):
            began = time.perf_counter()
            held = await gate.reserve(PLANNED) if gate else None
            if isinstance(held, BudgetReservation):
                await held.settle(CALL)
            took.append(time.perf_counter() - began)

    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(work(number) for number in range(tasks)))
    rate, cpu = len(took) / (time.perf_counter() - began), (time.process_time() - cpu) / len(took)
    median, slow = statistics.median(took), sorted(took)[len(took) * 95 // 100]
    print(
        f"{tasks:3} at once: {1e3 * median:.2f} ms a call (p95 {1e3 * slow:.2f}),"
        f" {1e3 * cpu:.2f} ms CPU, {rate:,.0f} calls/s"
    )


async def measure_claims(store: Database, people: int, threads: int) -> None:
    """Print how long it takes to choose the next conversation among many."""

    def fill(execute: Execute) -> None:
        execute("DELETE FROM conversations", {})
        for number in range(people * threads):
            key = conversations.begin_conversation(execute, replace(THREAD, topic=str(number)), 0.0)
            values = {"key": key, "ready": float(number), "person": f"telegram:{number % people}"}
            execute("UPDATE conversations SET pending=1, ready=:ready, person=:person WHERE key=:key", values)

    await store.run(fill)
    took = []
    for _ in range(50):
        began = time.perf_counter()
        await store.run(
            lambda execute: conversations.claimable_conversations(execute, "me", 1e9, 2e9, 1), durable=False
        )
        took.append(time.perf_counter() - began)
    print(f"{people} people with {threads} threads each wait: {1e3 * statistics.median(took):.2f} ms a claim")


async def measure(folder: Path) -> None:
    """Run all measurements."""
    migrate_database(folder / "fawn.db")
    async with Database(folder / "fawn.db") as store:
        for tasks in (1, 32):
            await measure_calls(store, tasks)
        for people, threads in ((1, 10_000), (100, 100), (1000, 10)):
            await measure_claims(store, people, threads)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(dir=parser.parse_args().folder) as made:
        uvloop.run(measure(Path(made)))
