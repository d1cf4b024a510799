"""Measure one chat at a time: latency, time beyond the model, and CPU per turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.harness import Job, Row, Turn, World, median, ms, new_chats, p99, show
from bench.service import NO_LIMITS, Kind, Service

SPANS: list[tuple[str, Callable[[Turn], float], float | None, float | None]] = [
    # name, span, goal of the median, goal of p99 (ms)
    ("update received -> request at the model", lambda t: t.asked - t.received, 12, 30),
    ("update received -> first sign of life", lambda t: t.sign - t.received, 10, None),
    ("first token -> visible", lambda t: t.first_visible - t.first_token, 20, None),
    ("last token -> final state visible", lambda t: t.final_visible - t.last_token, 8, None),
    ("whole turn beyond the model", lambda t: t.overhead, 25, None),
]
FAST = {**NO_LIMITS, "per_chat": 1e6, "burst": 1000}  # a chat at a time: its own pace is not what is measured


async def alone(world: World, service: Service, jobs: Sequence[Job]) -> tuple[list[Turn], float]:
    """Run the turns of `jobs` one after the other; return them and the CPU seconds per turn."""
    for job in [Job(chat) for chat in new_chats(5)]:  # warm up
        await world.turn(job)
    before = service.cpu()
    turns = [await world.turn(job) for job in jobs]
    return turns, (service.cpu() - before) / len(jobs)


async def measure(world: World, kind: Kind, turns: int) -> dict[str, tuple[list[Turn], float]]:
    """Measure 20 tokens at once, 100 tokens at 50 a second (at a chat's own limit), and (Fawn) five sandbox
    commands."""
    chats = new_chats(10)
    results = {}
    async with world.service(kind, rates=FAST) as service:
        results["20"] = await alone(world, service, [Job(chats[n % 10]) for n in range(turns)])
    slow = max(10, turns // 5)
    async with world.service(kind, rates=NO_LIMITS) as service:
        results["100"] = await alone(world, service, [Job(chats[n % 10], 100, 0.02) for n in range(slow)])
    if kind == "fawn":
        async with world.service(kind, rates=FAST) as service:
            results["tools"] = await alone(world, service, [Job(chats[n % 10], tools=5) for n in range(slow)])
    return results


async def run(world: World, full: bool = False) -> list[Row]:
    """Run the part and compare it with the goals and the floor of the same run."""
    count = 200 if full else 60
    floor = await measure(world, "floor", count)
    fawn = await measure(world, "fawn", count)
    rows: list[Row] = []
    for name, span, goal, goal99 in SPANS:
        ours, bare = ms(fawn["20"][0], span), ms(floor["20"][0], span)
        rows.append(Row(name, median(ours), floor=median(bare), goal=goal, note=f"{count} turns"))
        rows.append(Row(f"  p99 of {name}", p99(ours), floor=p99(bare), goal=goal99))
    steps = [gap * 1000 for turn in fawn["tools"][0] for gap in turn.gaps[1:]]
    first = [turn.gaps[0] * 1000 for turn in fawn["tools"][0]]
    rows.append(Row("a sandbox command more (between two model calls)", median(steps), goal=22))
    rows.append(Row("  p99 of a sandbox command more", p99(steps)))
    rows.append(Row("  the first sandbox command of a turn", median(first), note="the sandbox may have to start"))
    for key, words, limit in (("20", "20 tokens at once", 18), ("100", "100 tokens at 50/s", 22)):
        rows.append(Row(f"CPU a turn, {words}", fawn[key][1] * 1000, floor=floor[key][1] * 1000, goal=limit))
    calls = median([turn.calls for turn in fawn["100"][0]])
    rows.append(Row("platform calls for 100 tokens in 2 s", calls, "calls", median([t.calls for t in floor["100"][0]])))
    show("One chat at a time", rows)
    return rows
