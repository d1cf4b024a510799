"""Measure a thousand turns in one thread, and memory over many turns."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from bench.harness import Job, Row, World, median, ms, new_chats, show
from bench.latency import FAST

EDGE = 50  # turns at either end that are compared
SIDE_BY_SIDE = 20
FLAT = 10.0  # MB that memory may grow from a tenth of the turns to all of them


async def one_thread(world: World, turns: int) -> list[Row]:
    """Run `turns` turns in one private chat, then shut down gracefully."""
    [chat] = new_chats(1)
    async with world.service("fawn", rates=FAST) as service:
        times = [await world.turn(Job(chat)) for _ in range(turns)]
        await service.stop()
        size = service.size()
    first, last = (median(ms(part, lambda t: t.overhead)) for part in (times[:EDGE], times[-EDGE:]))
    return [
        Row(f"data folder after {turns} turns and a clean stop", size, "MB", goal=10),
        Row(f"the last {EDGE} turns against the first", last - first, goal=30, note=f"{first:.1f} -> {last:.1f} ms"),
    ]


async def memory(world: World, turns: int) -> list[Row]:
    """Run `turns` turns in 100 chats, 20 at once; return RSS after a tenth and at the end."""
    chats = new_chats(100)
    async with world.service("fawn", rates=FAST) as service:
        idle = service.rss()

        async def worker(todo: Iterator[int], chat: Iterator[int]) -> None:
            for _ in todo:
                await world.ask([Job(next(chat))])

        async def spend(count: int) -> float:
            todo = iter(range(count))
            shares = [iter(chats[n::SIDE_BY_SIDE] * (count + 1)) for n in range(SIDE_BY_SIDE)]
            await asyncio.gather(*(worker(todo, share) for share in shares))
            await world.telegram("forget")
            await world.model("forget", keep_bodies=False)
            return service.rss()

        early = await spend(turns // 10)
        late = await spend(turns - turns // 10)
    return [
        Row("RSS before the first turn", idle, "MB"),
        Row(f"RSS after {turns // 10} turns", early, "MB"),
        Row(f"RSS after {turns} turns", late, "MB", goal=early + FLAT, note=f"{late - early:+.1f} MB since"),
    ]


async def run(world: World, full: bool = False, turns: int = 0) -> list[Row]:
    """Run the part and compare it with the goals; `turns` overrides the number for the memory row."""
    rows = await one_thread(world, 1000 if full else 200)
    rows += await memory(world, turns or (10_000 if full else 1000))
    show("A long life", rows)
    return rows
