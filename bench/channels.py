"""Measure stream latency and many chats on every platform, word for word.

The whole service against the fakes, each a process of its own. `fawn` is measured; what it is compared with in the same
run is the model's own time (`ideal`) and a bare call to the platform (`floor`).
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from bench.harness import Exact, Job, Row, World, median, p99, show
from bench.load import IDEAL, PACE, TOKENS
from bench.service import Kind, Service, Setup, started
from tests.fakes.process import Remote, process

NAMES = ("telegram", "slack", "discord", "feishu")
WINDOW = 200.0  # ms over which the model's deltas may be merged
SLOW = 0.3  # response time of a slow platform, in seconds
SETTLE = 1.0  # seconds after the last answer in which a late double would show
_people = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Connected(Setup):
    """A service on several platforms."""

    channels: dict[str, dict[str, object]] = field(default_factory=dict)

    def command(self, kind: Kind) -> list[str]:
        command = Setup.command(self, kind)
        path = Path(command[-1])
        config = yaml.safe_load(path.read_text())
        config["channels"] = {name: {**it, "access": {"open": True}} for name, it in self.channels.items()}
        path.write_text(yaml.safe_dump(config))
        return command


@dataclass(slots=True)
class Fakes:
    """The fake platforms and the fake model, each in its own process."""

    platforms: dict[str, Remote]
    model: Remote

    @asynccontextmanager
    async def service(self, *names: str, quick: bool = False, limited: bool = False) -> AsyncIterator[Service]:
        """Start a fresh service on these platforms, connected and warmed up."""
        await self.model("forget", keep_bodies=False)
        channels: dict[str, dict[str, object]] = {}
        for name in names:
            channels[name] = await self.platforms[name]("limited" if limited else "settings")
            channels[name] |= await self.platforms[name]("quick") if quick else {}
        with tempfile.TemporaryDirectory(prefix="fawn-bench-") as folder:
            setup = Connected("", self.model.base_url, Path(folder), channels=channels)
            async with started("fawn", setup) as service:
                async with asyncio.timeout(60):
                    for name in names:
                        while not await self.platforms[name]("connected"):
                            if service.process.returncode is not None:
                                words = (Path(folder) / "output.txt").read_text()[-2000:]
                                raise RuntimeError(f"the service did not start:\n{words}")
                            await asyncio.sleep(0.02)
                await asyncio.gather(*(self.ask(name, jobs(2)) for name in names))
                yield service

    async def ask(self, name: str, asked: Sequence[Job], seconds: float = 60.0) -> tuple[float, float, Exact]:
        """Send all messages at once on a platform; return when they were sent, when all were answered, and the
        replies."""
        platform = self.platforms[name]
        began = await platform("ask", texts={str(job.chat): job.text for job in asked})
        ended = await platform("answered", texts={str(job.chat): job.answer for job in asked}, seconds=seconds)
        if len(asked) > 2:
            await asyncio.sleep(SETTLE)
        exact, shown = Exact(), await platform("read_all", people=[job.chat for job in asked])
        for job in asked:
            texts = shown[str(job.chat)]
            exact.count(texts, job.answer)
        return began, ended, exact


def jobs(count: int, tokens: int = 20, pace: float = 0.0) -> list[Job]:
    """Create questions of people who have not used the bot before."""
    return [Job(next(_people), tokens, pace) for _ in range(count)]


@asynccontextmanager
async def fakes(model: Remote, names: Sequence[str] = NAMES) -> AsyncIterator[Fakes]:
    async with AsyncExitStack() as stack:
        platforms = {name: await stack.enter_async_context(process("bench.platforms", name)) for name in names}
        yield Fakes(platforms, model)


# ---------------------------------------------------------------- one chat at a time


async def words(fakes: Fakes, name: str, turns: int) -> list[Row]:
    """Measure when the first, later and last deltas of one chat are sent."""
    bare = [await _call(fakes.platforms[name]) for _ in range(50)]
    first, later, last = [], [], []
    async with fakes.service(name, quick=True):
        for job in jobs(turns, 60, 0.02):
            await fakes.ask(name, [job])
            request = (await fakes.model("requests", id=job.id))[-1]
            at = {int(n): t for n, t in (await fakes.platforms[name]("arrivals", word=f"{job.id}_")).items()}
            first.append((at[0] - request["first"]) * 1000)
            later += [(at[n] - request["first"] - n * job.pace) * 1000 for n in range(1, job.tokens - 1)]
            last.append((at[job.tokens - 1] - request["end"]) * 1000)
    return [
        Row(
            f"{name}: first delta -> call carrying it",
            median(first),
            floor=median(bare),
            goal=20,
            note=f"{turns} turns",
        ),
        Row(f"  {name}: later deltas -> call, p99", p99(later), floor=WINDOW, goal=WINDOW + 30),
        Row(f"  {name}: model end -> final state sent", median(last), floor=median(bare), goal=20),
    ]


async def slow(fakes: Fakes, name: str, turns: int) -> Row:
    """Measure the end of a reply on a slow platform: the current call, then the final one."""
    last = []
    await fakes.platforms[name]("set_latency", seconds=SLOW)
    try:
        async with fakes.service(name, quick=True):
            for job in jobs(turns, 60, 0.02):
                await fakes.ask(name, [job])
                request = (await fakes.model("requests", id=job.id))[-1]
                at = await fakes.platforms[name]("arrivals", word=f"{job.id}_")
                last.append((at[str(job.tokens - 1)] - request["end"]) * 1000)
    finally:
        await fakes.platforms[name]("set_latency", seconds=0.0)
    note = "of one call"
    return Row(
        f"  {name}, a call takes 300 ms: end -> final sent", median(last), floor=SLOW * 1000, goal=330, note=note
    )


async def _call(platform: Remote) -> float:
    began = time.monotonic()
    await platform("connected")
    return (time.monotonic() - began) * 1000


# ---------------------------------------------------------------- many chats


async def many(fakes: Fakes, chats: int, *names: str, goal: float | None = None) -> Row:
    """Run this many chats on each platform at once; return the makespan as a multiple of the model's own time."""
    async with fakes.service(*names) as service:
        crowds = {name: jobs(chats, TOKENS, PACE) for name in names}
        results = await asyncio.gather(*(fakes.ask(name, crowd) for name, crowd in crowds.items()))
        peak = service.peak()
    begin, end = min(began for began, _, _ in results), max(ended for _, ended, _ in results)
    whole = Exact()
    for _, _, exact in results:
        for field_ in ("replies", "right", "lost", "doubled"):
            setattr(whole, field_, getattr(whole, field_) + getattr(exact, field_))
    each = ", ".join(
        f"{name} {(ended - began) / IDEAL:.2f}" for name, (began, ended, _) in zip(names, results, strict=True)
    )
    figure = (end - begin) / IDEAL if whole.right == whole.replies else float("inf")
    title = f"{chats} chats on {names[0] if len(names) == 1 else f'each of {len(names)} platforms'}"
    return Row(
        title, figure, "ideal", goal=goal, note=f"{whole}, peak {peak:.0f} MB" + (f"; {each}" if len(names) > 1 else "")
    )


async def run(world: World, full: bool = False) -> list[Row]:
    """Run the part and compare it with the goals."""
    turns = 30 if full else 10
    async with fakes(world.model) as made:
        rows = []
        for name in NAMES:
            rows += await words(made, name, turns)
            rows.append(await slow(made, name, max(5, turns // 3)))
        show("Words on their way (60 tokens at 20 ms, one chat at a time)", rows)
        crowds = [await many(made, 50, *NAMES, goal=2.5), await many(made, 200, "slack", goal=2.5)]
        if full:
            crowds += [await many(made, 200, name, goal=2.5) for name in NAMES if name != "slack"]
        show(f"Many chats on every platform ({TOKENS} tokens at {PACE * 1000:.0f} ms: ideal {IDEAL:.2f} s)", crowds)
    return rows + crowds
