"""Attack the whole service (docs/redteam.md), ten minutes with `--full`, and measure how long others wait."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from bench.harness import Row, World, median, show

QUICK_SECONDS, FULL_SECONDS = 60, 600


async def run(world: World, full: bool = False) -> list[Row]:
    """Run the part in a process of its own, which has its own fakes and network."""
    seconds = FULL_SECONDS if full else QUICK_SECONDS
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.redteam", "--seconds", str(seconds), "--report", str(report)
        )
        await process.wait()
        found = json.loads(await asyncio.to_thread(report.read_text))
    rows = [
        Row("another person's answer under attack: longest", max(found["answers"]), "s", found["baseline"], goal=2),
        Row("  without waiting for a processor", max(found["own"]), "s", found["baseline"], goal=2),
        Row("  median", median(found["answers"]), "s", found["baseline"]),
        Row("hostile calls", found["calls"], "", note=f"in {found['turns']} turns, {found['unfinished']} stopped"),
        Row("left a conversation", len(found["leaks"]), "", goal=0),
        Row("faults in chats and log", len(found["faults"]), "", goal=0),
        Row("denied deeds done", len(found["deeds"]), "", goal=0),
    ]
    rows += await _strained()
    show(f"Red team, {seconds} s, {'with' if found['pages'] else 'without'} pages", rows)
    return rows


async def _strained() -> list[Row]:
    """Return what answers without an end and floods do to another person, on all platforms."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.redteam.strains", "--report", str(report)
        )
        await process.wait()
        found = json.loads(await asyncio.to_thread(report.read_text))
    rows = []
    for name in dict.fromkeys(each["name"] for each in found):
        alike = [each for each in found if each["name"] == name]
        longest, grown = max(max(each["own"]) for each in alike), max(each["growth_mb"] for each in alike)
        rows.append(Row(f"{name}: another person's answer, at most", longest, "s", goal=2))
        rows.append(Row("  more memory, at most", grown, "MB", goal=60))
    return rows
