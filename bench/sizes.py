"""Measure whether a turn costs more where there is more of something: `python -m bench sizes`.

Each row compares little with much in the same run, in CPU of the service: a chat of long messages at its beginning and
at its end, few and many skills, one MCP server and ten, one service on PostgreSQL and four that share its database.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from bench.harness import Job, Row, World, median, new_chats, show
from bench.idle import SERVER
from bench.latency import FAST, alone
from bench.service import Service, Setup, started
from tests.support.postgres import PROGRAMS, empty_database

WORDS = 400  # of each answer in a long chat: one message
SKILLS, SERVERS, TOOLS, SERVICES = (10, 300), (1, 10), 20, (1, 4)
CROWD = 60
GOAL = 1.1  # times the cost of little
LONG_GOAL = 1.3  # a chat grows until it is summarized
FLEET_GOAL = 1.3  # each service looks what the others left, and holds a lease


async def long_chat(world: World, messages: int) -> Row:
    """Compare the last eighth of a chat with the second one, which has a history. Each turn is two messages."""
    [chat] = new_chats(1)
    part = messages // 16
    costs = []
    async with world.service("fawn", rates=FAST) as service:
        await alone(world, service, [Job(chat)])
        for _ in range(8):
            before = service.cpu()
            for _turn in range(part):
                await world.turn(Job(chat, WORDS))
            costs.append((service.cpu() - before) / part * 1000)
    note = f"{' '.join(f'{each:.1f}' for each in costs)} ms by eighths"
    return Row(
        f"a chat of {messages} long messages: its end", costs[-1], floor=costs[1], goal=LONG_GOAL * costs[1], note=note
    )


def write_skills(folder: Path, count: int) -> None:
    for number in range(count):
        (own := folder / f"skill-{number}").mkdir(parents=True)
        head = f"---\nname: skill-{number}\ndescription: What number {number} does, and when to use it.\n---\n"
        (own / "SKILL.md").write_text(head + "A line of instructions for the task.\n" * 200)


async def compare(world: World, name: str, little: Mapping[str, Any], much: Mapping[str, Any], turns: int) -> Row:
    """Compare turns with two configurations, in turns; the order changes."""
    costs: dict[bool, list[float]] = {False: [], True: []}
    for number in range(4):
        many = number in (1, 2)
        chats = new_chats(10)
        async with world.service("fawn", rates=FAST, more=much if many else little) as service:
            _turns, cpu = await alone(world, service, [Job(chats[n % 10]) for n in range(turns)])
        costs[many].append(cpu * 1000)
    bare = median(costs[False])
    return Row(name, median(costs[True]), floor=bare, goal=GOAL * bare, note=f"{turns} turns twice each")


async def skills(world: World, turns: int) -> Row:
    with tempfile.TemporaryDirectory(prefix="fawn-bench-") as scratch:
        for count in SKILLS:
            await asyncio.to_thread(write_skills, Path(scratch, str(count)), count)
        few, many = ({"skills": {"folders": [str(Path(scratch, str(count)))]}} for count in SKILLS)
        return await compare(world, f"{SKILLS[1]} skills in place of {SKILLS[0]}", few, many, turns)


async def servers(world: World, turns: int) -> Row:
    environment = {"NOTES": "/dev/null", "MORE_TOOLS": str(TOOLS)}
    one = {"command": sys.executable, "args": [str(SERVER)], "env": environment}
    few, many = ({"mcpServers": {f"s{number}": one for number in range(count)}} for count in SERVERS)
    return await compare(world, f"{SERVERS[1]} MCP servers of {TOOLS} tools in place of 1", few, many, turns)


@asynccontextmanager
async def fleet(world: World, count: int, url: str) -> AsyncIterator[list[Service]]:
    """Start so many services on one database, and wait until one of them listens."""
    await world.telegram("forget")
    await world.model("forget", keep_bodies=False)
    with tempfile.TemporaryDirectory(prefix="fawn-bench-") as scratch:
        async with AsyncExitStack() as stack:
            services = []
            for number in range(count):
                (own := Path(scratch, str(number))).mkdir()
                more = {"database": {"url": url, "replicas": True}}
                setup = Setup(world.telegram.base_url, world.model.base_url, own, FAST, more=more)
                services.append(await stack.enter_async_context(started("fawn", setup)))
            async with asyncio.timeout(120):
                while not await world.telegram("poll_count"):
                    await asyncio.sleep(0.05)
            yield services


async def services(world: World, rounds: int) -> Row:
    """Compare the CPU of a turn, of all processes together, with a crowd at once."""
    costs = []
    for count in SERVICES:
        async with fleet(world, count, empty_database(f"sizes{os.getpid()}n{count}")) as running:
            for _warm in range(3):
                await world.ask([Job(chat) for chat in new_chats(CROWD)])
            before = sum(each.cpu() for each in running)
            for _round in range(rounds):
                await world.ask([Job(chat) for chat in new_chats(CROWD)])
            costs.append((sum(each.cpu() for each in running) - before) / rounds / CROWD * 1000)
    note = f"{CROWD} chats at once, {rounds} times"
    return Row(
        f"{SERVICES[1]} services on PostgreSQL in place of 1",
        costs[1],
        floor=costs[0],
        goal=FLEET_GOAL * costs[0],
        note=note,
    )


async def run(world: World, full: bool = False) -> list[Row]:
    """Run the part and compare it with the goals."""
    turns = 60 if full else 20
    rows = [await long_chat(world, 2000 if full else 240), await skills(world, turns), await servers(world, turns)]
    if PROGRAMS:
        rows.append(await services(world, 10 if full else 4))
    show(f"More of something (CPU a turn; floor: less of it; load {os.getloadavg()[0]:.1f})", rows)
    return rows
