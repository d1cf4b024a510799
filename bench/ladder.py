"""Measure where the time of a turn goes: `python -m bench ladder`.

Each rung is the one below it and one library more, from a bare loop on aiohttp to a graph with checkpoints in memory,
which is what most bots of this kind are; Fawn stands on the same libraries and keeps everything on the disk. All rungs
take part in each round, a round goes up, the next one down, and the figures are ratios within the run: milliseconds of
different hours say nothing. The goals compare Fawn with the graph that remembers.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from bench.harness import Job, Row, Turn, World, median, ms, new_chats, show
from bench.latency import FAST, alone
from bench.service import Kind

RUNGS: dict[Kind, str] = {
    "floor": "aiohttp alone",
    "openai": "openai's SDK",
    "langchain": "+ langchain",
    "graph": "+ a graph of one node",
    "checkpoints": "+ checkpoints in memory",
    "fawn": "Fawn, durable",
}
CROWD = 60
GOALS = {"CPU": 0.95, "beyond": 0.95, "model": 1.3, "memory": 1.04, "crowd": 0.5}


@dataclass(slots=True)
class Rung:
    """What a rung cost, over all rounds: times in milliseconds, memory in MB."""

    turns: list[Turn] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)  # a turn alone, by rounds
    crowd: list[float] = field(default_factory=list)  # a turn of many at once
    memory: list[float] = field(default_factory=list)  # after the turns alone

    @property
    def to_model(self) -> float:
        return median(ms(self.turns, lambda turn: turn.asked - turn.received))

    @property
    def beyond(self) -> float:
        return median(ms(self.turns, lambda turn: turn.overhead))


async def climb(world: World, kind: Kind, rung: Rung, count: int) -> None:
    """Add the figures of one round: turns alone in ten chats, then a crowd at once."""
    chats = new_chats(10)
    async with world.service(kind, rates=FAST) as service:
        turns, cpu = await alone(world, service, [Job(chats[n % 10]) for n in range(count)])
        rung.turns += turns
        rung.cpu.append(cpu * 1000)
        rung.memory.append(service.rss())
        crowd = [Job(chat) for chat in new_chats(CROWD)]
        before = service.cpu()
        await world.ask(crowd)
        rung.crowd.append((service.cpu() - before) / CROWD * 1000)


def goal_rows(fawn: Rung, bare: Rung) -> list[Row]:
    """Compare Fawn with the graph that remembers in memory and keeps nothing."""
    alone_ms = median(fawn.cpu)
    ratios = {
        "CPU": ("CPU of a turn", alone_ms / median(bare.cpu)),
        "beyond": ("time beyond the model", fawn.beyond / bare.beyond),
        "model": ("event -> model", fawn.to_model / bare.to_model),
        "memory": ("memory", median(fawn.memory) / median(bare.memory)),
    }
    rows = [
        Row(f"Fawn / a graph with checkpoints: {name}", it, "x", goal=GOALS[key]) for key, (name, it) in ratios.items()
    ]
    crowd = median(fawn.crowd) / alone_ms
    return [*rows, Row(f"{CROWD} chats at once / a turn alone: CPU", crowd, "x", goal=GOALS["crowd"])]


async def run(world: World, full: bool = False) -> list[Row]:
    """Run the part, show the ladder, and compare the ratios with the goals."""
    rounds, count = (6, 40) if full else (2, 30)
    rungs = {kind: Rung() for kind in RUNGS}
    for number in range(rounds):
        for kind in [*RUNGS][:: -1 if number % 2 else 1]:
            await climb(world, kind, rungs[kind], count)
    rows: list[Row] = []
    for kind, name in RUNGS.items():
        rung = rungs[kind]
        figures = (
            f"-> model {rung.to_model:.1f}, beyond {rung.beyond:.1f} ms, {CROWD} at once {median(rung.crowd):.1f} ms"
        )
        rows.append(Row(f"CPU a turn: {name}", median(rung.cpu), note=f"{figures}, {median(rung.memory):.0f} MB"))
    rows += goal_rows(rungs["fawn"], rungs["checkpoints"])
    show(f"The ladder ({rounds} rounds of {count} turns, 20 tokens at once, load {os.getloadavg()[0]:.1f})", rows)
    return rows
