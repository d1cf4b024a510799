"""Measure many chats at once, 100 tokens at 20 ms each, word for word."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from bench.harness import Exact, Job, Row, World, new_chats, show
from bench.service import NO_LIMITS, Kind

TOKENS, PACE = 100, 0.02
IDEAL = (TOKENS - 1) * PACE  # seconds a model needs for its words
# 200 ends at 95 % of Telegram's 30 calls a second, with a full bucket, begin when the model is done: no bot is quicker.
LIMITED = (IDEAL + (200 - 28.5) / 28.5) / IDEAL
SETTLE = 1.5  # seconds after the last answer in which a late double would show


@dataclass(frozen=True, slots=True)
class Case:
    """With `limits`, the platform enforces Telegram's limits and the service keeps its defaults."""

    chats: int
    goal: float
    latency: float = 0.0
    limits: bool = False

    @property
    def name(self) -> str:
        extra = f", platform answers in {self.latency * 1000:.0f} ms" if self.latency else ""
        return f"{self.chats} chats{extra}{', real limits' if self.limits else ''}"


CASES = [
    Case(5, 1.05),
    Case(10, 1.05),
    Case(25, 1.1),
    Case(50, 1.2),
    Case(100, 1.4),
    Case(200, 1.6),
    Case(400, 2.7),
    Case(50, 1.25, latency=0.06),
    Case(50, 1.6, limits=True),
    Case(200, 1.05 * LIMITED, limits=True),
]
QUICK = {5, 50, 200, 400}


async def measure(world: World, kind: Kind, case: Case) -> tuple[float, Exact, int, float]:
    """Return the makespan as a multiple of the ideal, the replies, refused calls and peak memory."""
    await world.telegram("set_latency", seconds=case.latency)
    await world.telegram("enforce_rates", on=case.limits)
    try:
        async with world.service(kind, rates={} if case.limits else NO_LIMITS) as service:
            await world.ask([Job(chat) for chat in new_chats(3)])  # warm up
            jobs = [Job(chat, TOKENS, PACE) for chat in new_chats(case.chats)]
            await world.ask(jobs, seconds=60)
            await asyncio.sleep(SETTLE)
            exact = await world.check(jobs)
            spans = [await world.makespan(job) for job in jobs]
            refused = await world.telegram("refused")
            assert service.process.returncode is None
            peak = service.peak()
        begin, end = min(span[0] for span in spans), max(span[1] for span in spans)
        return (end - begin) / IDEAL, exact, refused, peak
    finally:
        await world.telegram("set_latency", seconds=0)
        await world.telegram("enforce_rates", on=False)


async def run(world: World, full: bool = False) -> list[Row]:
    """Run the part and compare it with the goals, and with the floor where no limits apply."""
    rows: list[Row] = []
    for case in CASES:
        if not full and case.chats not in QUICK:
            continue
        floor = None if case.limits else (await measure(world, "floor", case))[0]
        ours, exact, refused, peak = await measure(world, "fawn", case)
        note = f"{exact}{f', {refused} calls refused' if case.limits else ''}, peak {peak:.0f} MB"
        rows.append(Row(case.name, ours, "ideal", floor, case.goal, note))
    show(f"Many chats at once ({TOKENS} tokens at {PACE * 1000:.0f} ms: ideal {IDEAL:.2f} s)", rows)
    return rows
