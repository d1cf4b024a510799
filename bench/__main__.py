"""`python -m bench`: every benchmark, quick by default; `--full` takes the numbers of the goals (half an hour)."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path

from bench import idle, latency, load, thread
from bench.harness import Row, world

PARTS = {"latency": latency.run, "load": load.run, "thread": thread.run, "idle": idle.run}


async def main(parts: list[str], full: bool) -> int:
    """Run the parts; the number of missed goals."""
    print(f"load average before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores")
    rows: list[Row] = []
    async with world() as outside:
        for part in parts:
            rows += await PARTS[part](outside, full)
    print(f"\nload average after: {Path('/proc/loadavg').read_text().split()[0]}")
    return sum(1 for row in rows if row.goal is not None and not row.figure <= row.goal)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="which ones (default: all)")
    parser.add_argument("--full", action="store_true", help="the sizes of the goals")
    given = parser.parse_args()
    missed = asyncio.run(main(given.parts or list(PARTS), given.full))
    print(f"{missed} goals missed" if missed else "every goal met")
