"""Attack the whole service for some time: `python -m tests.redteam --seconds 60`. See docs/redteam.md."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sandbox.disk.folders import remove_tree
from tests.redteam.calls import DENIED, hostile_turns
from tests.redteam.judge import HostileModel, Report, Starvation, Watch, WatchedTelegram, marker
from tests.redteam.members import OPERATOR, Arena, attack, command, flood, upload
from tests.redteam.network import enter_network, hostile_sites
from tests.redteam.texts import NETWORK, SKILLS
from tests.support.service_process import Service, ask

SECRETS = {"OPENAI_API_KEY": "sk-redteam-0f5e1c2d3b4a", "REDTEAM_SECRET": "redteam-secret-77aa31"}
ATTACKERS, FIRST_ATTACKER, OTHERS = 10, 101, (11, 12, 13)
CALM_PROBES, PROBE_PAUSE_SECONDS, GIVE_UP_SECONDS = 12, 0.3, 30.0


def settings(folder: Path, has_pages: bool) -> dict[str, Any]:
    """Return a configuration with everything on that can be attacked."""
    program = str(Path(__file__).with_name("mcp_server.py"))
    servers = {
        kind: {"command": sys.executable, "args": [program, kind], "env": {"DEEDS": str(folder)}, "call_seconds": 5}
        for kind in ("hang", "flood", "liar")
    }
    agent = {"name": "coder", "description": "Codes.", "command": "python3 /mnt/user-data/uploads/*agent.py"}
    web = {"search": [{"provider": "searxng", "url": f"http://{NETWORK}.9"}]} if has_pages else {}
    preview = {"enabled": True, "listen": "127.0.0.1:8088"} if has_pages else {}
    return {
        "mcpServers": servers,
        "mcp": {"defer_tokens": 0},
        "external_agents": [agent],
        "permissions": {"deny": list(DENIED), "allow": ["mcp__*", "web_fetch", "invoke_agent"]},
        "memory": {"enabled": True, "wait_seconds": 2},
        "schedules": {"least_minutes": 0},
        "sandbox": {"memory_mb": 256, "processes": 64, "disk_mb": 200, "tmp_mb": 32, "preview": preview},
        "web": web,
        "channels": {"telegram": {"access": {"open": True, "operators": [str(OPERATOR)]}}},
    }


def write_hostile_skills(folder: Path) -> None:
    """Put bombs where an operator keeps skills."""
    for number, text in enumerate(SKILLS):
        place = folder / "skills" / "custom" / f"bomb{number}"
        place.mkdir(parents=True)
        (place / "SKILL.md").write_text(text)


def busyness() -> float:
    """Return how many times more than twice its processors the machine has to do, at least 1."""
    return max(1.0, os.getloadavg()[0] / (2 * (os.cpu_count() or 1)))


class Probes:
    """Other people, who want an answer."""

    def __init__(self, arena: Arena, starved: Starvation) -> None:
        self._arena, self._starved = arena, starved
        self._numbers = itertools.count()

    async def probe(self) -> tuple[float, float]:
        """Return the seconds until the answer, and how many of them the machine was too busy."""
        number = next(self._numbers)
        chat = OTHERS[number % len(OTHERS)]
        begun, late = time.monotonic(), self._starved.now()
        self._arena.telegram.send(f"{marker(chat)} {ask(text=f'answer {number}.')}", chat=chat)
        try:
            await self._arena.telegram.wait(chat, f"answer {number}.", seconds=GIVE_UP_SECONDS)
        except TimeoutError:
            return GIVE_UP_SECONDS, 0.0
        return time.monotonic() - begun, self._starved.since(late)

    async def until_over(self) -> None:
        """Ask again and again, and note who waited too long."""
        report = self._arena.report
        begun = time.monotonic()
        while not self._arena.over:
            waited, late = await self.probe()
            report.answers.append(round(waited, 3))
            report.own.append(round(max(0.0, waited - late), 3))
            limit = report.limit * busyness()
            if waited - late > limit:
                at = time.monotonic() - begun
                words = f"another person waited {waited:.1f} s ({late:.1f} s of it for a processor) after {at:.0f} s"
                report.add(report.late, f"{words}; the limit is {limit:.1f} s")
            await asyncio.sleep(PROBE_PAUSE_SECONDS)


async def look(arena: Arena, watch: Watch) -> None:
    """Look at chats and log every second, until cancelled."""
    while True:
        arena.telegram.take_calls()
        watch.check_log(arena.service.folder / "log")
        await asyncio.sleep(1)


async def besiege(arena: Arena, watch: Watch) -> None:
    """Measure the calm, attack, and see what has become of the service."""
    starved = Starvation()
    assert arena.service.process
    starved.service = arena.service.process.pid
    probes = Probes(arena, starved)
    helpers = [
        asyncio.create_task(starved.measure(), name="starved"),
        asyncio.create_task(look(arena, watch), name="look"),
        asyncio.create_task(arena.look_for_work(), name="work"),
    ]
    for _ in OTHERS:
        await probes.probe()
    calm = [await probes.probe() for _ in range(CALM_PROBES)]
    arena.report.baseline = max(waited for waited, _ in calm)
    began = time.monotonic()
    arena.end = began + arena.report.seconds
    turns = itertools.cycle(list(arena.model.turns.values()))
    chats = range(FIRST_ATTACKER, FIRST_ATTACKER + ATTACKERS)
    attacks = [flood(arena), upload(arena), command(arena), *(attack(arena, chat, turns.__next__) for chat in chats)]
    running = [asyncio.create_task(each, name="attack") for each in attacks]
    await probes.until_over()
    broken = [task for task in running if task.done() and task.exception()]
    await _end(*running, *helpers)
    for task in broken:
        task.result()


async def _end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def run(seconds: float, seed: int, calls: int, folder: Path) -> Report:
    """Attack a service in this folder."""
    report = Report(seconds)
    watch = Watch(report, [*SECRETS.values(), str(folder)])
    WatchedTelegram.watch = HostileModel.watch = watch
    async with (
        hostile_sites() as has_pages,
        WatchedTelegram() as telegram,
        HostileModel(hostile_turns(seed, calls)) as model,
    ):
        report.pages = has_pages
        write_hostile_skills(folder)
        service = Service(folder, telegram, model, settings(folder, has_pages))
        service.more_environment = SECRETS
        arena = Arena(service, telegram, model, report, 0.0, random.Random(seed))
        await service.start()
        try:
            await besiege(arena, watch)
            code = await service.stop(60)
            if code:
                report.faults.append(f"the service ended with {code}")
        finally:
            await service.kill()
        telegram.take_calls()
        watch.check_log(folder / "log")
        watch.check_deeds(folder)
        if report.calls >= calls:
            odd = "mcp__liar__odd"  # and thirty more, whose names begin with it
            mine = {name for name in model.offered if name == odd or not name.startswith(odd)}
            report.untried = sorted(mine - model.called)
    return report


def main() -> int:
    """Run, print what came of it, and return 1 if something did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.redteam", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0, help="another one gives other calls")
    parser.add_argument("--calls", type=int, default=2_000, help="how many before they repeat")
    parser.add_argument("--report", type=Path, help="a file for all that was measured, as JSON")
    parser.add_argument("--keep", type=Path, help="an empty folder for the service, which stays")
    given = parser.parse_args()
    enter_network()
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # the service leaves fakes in the middle of answers
    folder = given.keep or Path(tempfile.mkdtemp(prefix="fawn-redteam-"))
    try:
        report = asyncio.run(run(given.seconds, given.seed, given.calls, folder))
    finally:
        if not given.keep:
            remove_tree(folder)
    if given.report:
        report.save(given.report)
    pages = "with pages" if report.pages else "without pages"
    print(
        f"{report.calls} calls in {report.turns} turns ({report.unfinished} stopped), {pages},"
        f" {len(report.answers)} probes:"
    )
    print(f"calm {report.baseline:.2f} s, longest {max(report.answers, default=0):.2f} s, limit {report.limit:.2f} s")
    print("\n".join(report.problems) or "All held.")
    return int(bool(report.problems))


if __name__ == "__main__":
    sys.exit(main())
