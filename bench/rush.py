"""Measure many people at once inside the limits of each platform: `python -m bench rush`.

The whole service with its defaults against the fakes, which enforce the documented limits, three times them, or none.
The figures are of each reply: how long after its model's end it was complete. The ideal is the model's own time. The
floor is a bare loop that reads as many streams of the same model right afterwards, without any platform: what the
machine and the fake model themselves take.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass

import aiohttp

from bench.channels import Fakes, fakes, jobs
from bench.floor import Floor
from bench.harness import Exact, Row, World, median, show
from bench.load import IDEAL, PACE, TOKENS

NAMES = ("slack", "discord", "telegram", "feishu", "dingtalk")
LIMITS = {"documented": 1.0, "three times": 3.0, "none": 0.0}
PATIENCE = 90.0  # seconds for all replies


@dataclass(frozen=True, slots=True)
class Rush:
    """So many people at once on a platform. The goals: seconds after the model's end, and times the ideal."""

    platform: str
    people: int
    limits: str
    final: float | None = None
    span: float | None = None
    threads: bool = False  # each gets a thread of a channel


CASES = [
    Rush("slack", 50, "documented", final=5),
    Rush("slack", 200, "documented", final=20),
    Rush("slack", 50, "three times", final=5),
    Rush("slack", 200, "three times", final=20),
    Rush("slack", 50, "none", span=1.25),
    Rush("slack", 200, "none", span=2.0),
    Rush("discord", 50, "documented", final=5, span=1.7, threads=True),
    *(Rush(name, 50, limits, final=5) for name in NAMES[1:] for limits in LIMITS),
    *(Rush(name, 200, "documented", final=20) for name in NAMES[1:] if name != "telegram"),
    Rush("telegram", 200, "documented", final=20, span=3.6),
    *(Rush(name, 200, "none") for name in NAMES[1:]),
]


async def read_streams(made: Fakes, people: int) -> float:
    """Return the seconds in which a bare loop reads so many streams of the model at once."""
    timeout = aiohttp.ClientTimeout(total=PATIENCE)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        bare = Floor(session, "", made.model.base_url)

        async def read(text: str) -> None:
            async for _word in bare.stream(text):
                pass

        began = time.monotonic()
        await asyncio.gather(*(read(job.text) for job in jobs(people, TOKENS, PACE)))
        return time.monotonic() - began


async def measure(made: Fakes, rush: Rush) -> list[Row]:
    """Return the seconds from the model's end to the complete reply (longest and median), and the makespan."""
    platform = made.platforms[rush.platform]
    await platform("forget_calls")
    if rush.platform == "discord":
        await platform("use_threads", on=rush.threads)
    async with made.service(rush.platform, limited=True) as service:
        await platform("enforce", factor=LIMITS[rush.limits])
        crowd = jobs(rush.people, TOKENS, PACE)
        began = await platform("ask", texts={str(job.chat): job.text for job in crowd})
        at = await platform("answered_each", texts={str(job.chat): job.answer for job in crowd}, seconds=PATIENCE)
        waits = []
        for job in crowd:
            requests = await made.model("requests", id=job.id)
            end = at.get(str(job.chat), float("inf"))
            waits.append(end - requests[-1]["end"] if requests else float("inf"))
        exact = Exact()
        shown = await platform("read_all", people=[job.chat for job in crowd])
        for job in crowd:
            exact.count(shown[str(job.chat)], job.answer)
        refused, peak = await platform("refusals"), service.peak()
        if os.environ.get("RUSH_CALLS"):
            print(await platform("count_calls"))
        await platform("enforce", factor=0.0)
    bare = await read_streams(made, rush.people) / IDEAL
    whole = (max(at.values()) - began) / IDEAL if len(at) == len(crowd) else float("inf")
    counted = f"{refused['total']} refused, {refused['again']} again"
    words = f"{exact}, {counted}, peak {peak:.0f} MB, load {os.getloadavg()[0]:.1f}"
    where = " in threads" if rush.threads else ""
    name = f"{rush.platform}, {rush.people} people{where}, limits {rush.limits}"
    return [
        Row(
            f"{name}: model end -> whole, longest",
            max(waits),
            "s",
            goal=rush.final,
            note=f"median {median(waits):.2f} s",
        ),
        Row(f"  {name}: makespan", whole, "ideal", bare, goal=rush.span, note=words),
        Row(f"  {name}: refused twice in a row", refused["again"], "", goal=0),
    ]


async def run(world: World, full: bool = False) -> list[Row]:
    """Run the part and compare it with the goals."""
    only = os.environ.get("RUSH", "").split()
    rows: list[Row] = []
    async with fakes(world.model, NAMES) as made:
        for case in CASES:
            if (full or case.people == 50 or case.limits == "documented") and all(
                word in f"{case.platform} {case.people} {case.limits}".split() for word in only
            ):
                rows += await measure(made, case)
                show(f"Rush ({TOKENS} tokens at {PACE * 1000:.0f} ms: ideal {IDEAL:.2f} s)", rows[-3:])
    return rows
