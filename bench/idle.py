"""Measure startup and idle costs: time to listen and to answer, memory and CPU."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.harness import Job, Row, World, median, new_chats, show

SERVER = Path(__file__).parents[1] / "tests" / "fakes" / "mcp_old.py"
NOWHERE = "http://127.0.0.1:9/v1"
# Documents need no section: they are always on.
EVERYTHING: Mapping[str, Any] = {
    "mcpServers": {"tools": {"command": sys.executable, "args": [str(SERVER)], "env": {"NOTES": "/dev/null"}}},
    "web": {"search": [{"provider": "searxng", "url": NOWHERE}]},
    "voice": {"base_url": NOWHERE},
    "external_agents": [{"name": "coder", "command": "coder"}],
}
NOTHING: Mapping[str, Any] = {"web": {"fetch": False}}


async def start(world: World) -> tuple[float, float]:
    """Return the seconds from process start to the first getUpdates and to the first complete reply."""
    [chat] = new_chats(1)
    job = Job(chat)
    async with world.service("fawn") as service:
        listening = (await world.first_poll()) - service.started
    async with world.service("fawn", waiting=[job]) as service:
        await world.ask([job], send=False)
        replied = (await world.times(job)).final_visible - service.started
    return listening, replied


async def memory(world: World, more: Mapping[str, Any]) -> float:
    """Return RSS in MB after a turn, with these sections."""
    async with world.service("fawn", more=more) as service:
        [chat] = new_chats(1)
        await world.turn(Job(chat))
        await asyncio.sleep(5)
        return service.rss()


async def rest(world: World, seconds: float) -> tuple[float, float, float]:
    """Return RSS in MB before and after the first turn, and CPU in percent of a core, with a terminal attached."""
    async with world.service("fawn", tty=True) as service:
        fresh = service.rss()
        [chat] = new_chats(1)
        await world.turn(Job(chat))
        await asyncio.sleep(5)  # let the turn's own work end
        before = service.cpu()
        await asyncio.sleep(seconds)
        return fresh, service.rss(), (service.cpu() - before) / seconds * 100


async def run(world: World, full: bool = False) -> list[Row]:
    """Run the part and compare it with the goals."""
    starts = [await start(world) for _ in range(10 if full else 3)]
    fresh, used, cpu = await rest(world, 60 if full else 20)
    more = await memory(world, EVERYTHING) - await memory(world, NOTHING)
    rows = [
        Row("start -> listening", median([s[0] for s in starts]), "s", goal=1.5, note=f"{len(starts)} starts"),
        Row("start -> first reply (message was waiting)", median([s[1] for s in starts]), "s", goal=3),
        Row("RSS idle after a turn, console and Telegram", used, "MB", goal=160, note=f"{fresh:.0f} before the first"),
        Row("RSS more with MCP, web, voice, agents configured", more, "MB", goal=20, note="unused, after a turn"),
        Row("CPU idle, console and Telegram", cpu, "%", goal=0.3),
    ]
    show("Start and rest", rows)
    return rows
