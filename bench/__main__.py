"""Run every benchmark: `python -m bench`; quick by default, `--full` for full sizes."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable

from bench import (
    channels,
    growth,
    http,
    idle,
    journeys,
    judgement,
    kills,
    ladder,
    latency,
    load,
    metrics,
    old,
    page,
    prefix,
    redteam,
    rush,
    sizes,
    subagents,
    thread,
    web,
)
from bench.harness import Row, World, conclude, world

PARTS: dict[str, Callable[[World, bool], Awaitable[list[Row]]]] = {
    "latency": latency.run,
    "ladder": ladder.run,
    "load": load.run,
    "channels": channels.run,
    "rush": rush.run,
    "thread": thread.run,
    "old": old.run,
    "idle": idle.run,
    "kills": kills.run,
    "subagents": subagents.run,
    "web": web.run,
    "redteam": redteam.run,
    "judgement": judgement.run,
    "prefix": prefix.run,
    "metrics": metrics.run,
    "page": page.run,
    "http": http.run,
    "growth": growth.run,
    "sizes": sizes.run,
    "journeys": journeys.run,
}


async def main(parts: list[str], full: bool, turns: int, replicas: int, markdown: bool) -> int:
    """Run the parts, say which goals were missed, and return the exit code."""
    print(f"load average before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores")
    rows: list[Row] = []
    async with world() as outside:
        for part in parts:
            if part == "thread" and turns:
                rows += await thread.run(outside, full, turns)
            elif part == "kills":
                rows += await kills.run(outside, full, replicas)
            else:
                rows += await PARTS[part](outside, full)
    if markdown:
        print("\n| | figure | floor | goal | |\n| --- | --- | --- | --- | --- |")
        print("\n".join(row.markdown() for row in rows))
    print(f"\nload average after: {os.getloadavg()[0]:.2f}")
    return conclude(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"which ones of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--full", action="store_true", help="the sizes of the goals")
    parser.add_argument("--turns", type=int, default=0, help="how many turns the memory row takes")
    parser.add_argument("--replicas", type=int, default=1, help="how many services on one PostgreSQL `kills` kills")
    parser.add_argument("--markdown", action="store_true", help="the figures once more, as a table for the docs")
    given = parser.parse_args()
    if unknown := set(given.parts) - PARTS.keys():
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    parts = given.parts or list(PARTS)
    sys.exit(asyncio.run(main(parts, given.full, given.turns, given.replicas, given.markdown)))
