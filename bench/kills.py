"""Kill the service again and again while people talk on five platforms.

`python -m bench kills` kills it 60 times in some minutes, with `--full` a thousand times in three quarters of an hour;
`python -m bench.kills` takes other numbers, and keeps the log. With `FAWN_TEST_DATABASE=postgresql` it does so on
PostgreSQL, whose server restarts, and whose connections are cut; with `--replicas 3`, which both take, three services
share it, and the time is measured until another one goes on. Prints how far it is; ctrl-C (or SIGTERM) ends it
early, with the figures until then. Clock steps need a C compiler, full disks need root (for a small tmpfs): what cannot
be done is said and left out.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.harness import Row, World, show
from tests.support.all_platforms import AllPlatforms
from tests.support.fleet import Fleet
from tests.support.fleet_kills import BUDGETS, SOON, FleetFigures, FleetRun, share_of
from tests.support.kills import Figures, KillRun, Plan
from tests.support.postgres import ENGINE

DISK_MB = 192
QUICK_KILLS, FULL_KILLS = 60, 1000
OFTEN = ("--stops", "25", "--restarts", "20", "--cuts", "12")  # pauses and the like among so few kills
TELL = 15.0  # seconds between two lines
SETTINGS = {
    "limits": {"attempts": 1_000_000, "flood_messages": 1_000_000, "earlier_messages": 0, "notify_seconds": 0},
    "context": {"trigger_messages": 40, "keep_messages": 10},
}


@contextmanager
def disk(folder: Path) -> Iterator[bool]:
    """Mount a small file system at `folder`/data; yields whether that worked."""
    data = folder / "data"
    data.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=700", "fawn-kills", str(data)], check=False
        ).returncode
    ):
        yield False
        return
    try:
        yield True
    finally:
        subprocess.run(["umount", "--lazy", str(data)], check=True)


@contextmanager
def clock(folder: Path) -> Iterator[Path | None]:
    """Build the library that steps the clock of every process started from now on; yields the file with its step."""
    compiler = shutil.which("cc")
    if compiler is None:
        yield None
        return
    library, step = folder / "clock.so", folder / "step"
    source = Path(__file__).with_name("clock.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, source], check=True)
    step.write_bytes(bytes(8))
    names = {"LD_PRELOAD": str(library), "STEPPED_CLOCK": str(step)}
    os.environ |= names  # the nursery inherits it
    try:
        yield step
    finally:  # other parts have a true clock
        for name in names:
            del os.environ[name]


async def tell(run: KillRun, service: AllPlatforms, kills: int, report: Report) -> None:
    """Print the progress from time to time, and clear the log of the fake model."""
    began = time.monotonic()
    while True:
        await asyncio.sleep(TELL)
        figures, seconds = run.figures, time.monotonic() - began
        pace = figures.kills / seconds * 60
        left = (kills - figures.kills) / pace if pace else float("inf")
        report.say(
            f"{seconds:6.0f} s  {figures.kills} kills ({pace:.0f} a minute, {left:.0f} minutes left),"
            f" {figures.answered}/{figures.asked} answered, {len(figures.ended)} ended by themselves",
        )
        if not isinstance(run, FleetRun):  # which compares it with the budgets
            service.model.forget(keep_bodies=False)


class Report:
    """What is printed, and kept in a file at once."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def say(self, text: str) -> None:
        print(text, flush=True)
        if self._path:
            with self._path.open("a") as file:
                file.write(f"{text}\n")


async def run(_world: World, full: bool = False, replicas: int = 1) -> list[Row]:
    """Run the part and compare it with the goals: nothing lost, nothing doubled."""
    kills = FULL_KILLS if full else QUICK_KILLS
    more = OFTEN if replicas > 1 else ()
    figures = await kill(parser().parse_args(["--kills", str(kills), "--replicas", str(replicas), *more]))
    note = f"{figures.kills} kills, {figures.asked:,} messages, {figures.answered:,} answered"
    rows = [
        Row("messages lost by kill -9", len(figures.lost), "", goal=0, note=note),
        Row(
            "answers or effects doubled by kill -9", len(figures.doubled), "", goal=0, note=f"{figures.effects} effects"
        ),
        Row("repeats marked as such (Telegram)", figures.repeats, ""),
        Row("services that ended by themselves", len(figures.ended), "", goal=0),
    ]
    if isinstance(figures, FleetFigures):
        seconds = sorted(figures.all_takeovers)
        note = f"{len(seconds)} turns whose service was killed"
        rows += [
            Row("budgets that are not exact", len(figures.budget), "", goal=0),
            Row("until another service goes on, p99", share_of(seconds, 99), "s", goal=SOON, note=note),
        ]
    show("Kills", rows)
    return rows


async def kill(given: argparse.Namespace) -> Figures:
    """Kill the service, or those that share a database."""
    return await (measure_fleet(given) if given.replicas > 1 else measure(given))


async def measure(given: argparse.Namespace) -> Figures:
    """Kill the service so often, print what happened, and return the figures."""
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # clients that die are what this is about
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fawn-kills-")))
        small, step = stack.enter_context(disk(folder)), stack.enter_context(clock(folder))
        for missing, words in ((small, "full disks (not root)"), (step, "clock steps (no C compiler)")):
            if not missing:
                print(f"left out: {words}", flush=True)
        plan = Plan(
            given.kills,
            talkers=given.talkers,
            stops=given.kills // given.stops if given.stops else 0,
            steps=given.kills // given.steps if given.steps and step else 0,
            fulls=given.kills // given.fulls if given.fulls and small else 0,
            restarts=given.kills // given.restarts if given.restarts and ENGINE == "postgresql" else 0,
            cuts=given.kills // given.cuts if given.cuts and ENGINE == "postgresql" else 0,
            clock=step,
        )
        async with AllPlatforms.open(folder, given.only, **SETTINGS) as service:
            figures = await watched(KillRun(service, plan), service, given)
            await service.stop()
            if given.log:
                shutil.copyfile(folder / "log", given.log)
                if ENGINE == "sqlite":
                    shutil.copyfile(service.database, given.log.with_suffix(".db"))
        return figures


async def watched(killing: KillRun, service: AllPlatforms, given: argparse.Namespace) -> Figures:
    """Run it and print how far it is; ctrl-C ends it early. Whatever ended it, what it counted is printed."""
    report = Report(given.report)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, killing.stop.set)
    began = time.monotonic()
    telling = asyncio.create_task(tell(killing, service, given.kills, report), name="tell")
    try:
        return await killing.run()
    finally:
        telling.cancel()
        early = f" (stopped early: {given.kills} were asked for)" if killing.stop.is_set() else ""
        load = os.getloadavg()[0]
        report.say(f"\n{time.monotonic() - began:.0f} s{early}, load {load:.1f}: {killing.figures}")
        if isinstance(killing, FleetRun):
            report.say(killing.figures.table())
        report.say("\n".join(killing.figures.faults) or "no fault")


async def measure_fleet(given: argparse.Namespace) -> FleetFigures:
    """Kill services that share a PostgreSQL, so often, and print what happened."""
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)

    class Wanted(Fleet):
        count = given.replicas

    plan = Plan(
        given.kills,
        life=(given.pace / 2, given.pace * 1.5),
        talkers=given.talkers,
        stops=given.kills // given.stops if given.stops else 0,
        restarts=given.kills // given.restarts if given.restarts else 0,
        cuts=given.kills // given.cuts if given.cuts else 0,
        cut_shares=(0.3, 1.0),
        think=(0.2, 2.0),
        rest=240.0,
    )
    with tempfile.TemporaryDirectory(prefix="fawn-kills-") as name:
        folder = Path(name)
        try:
            async with Wanted.open(folder, given.only, **SETTINGS, **BUDGETS) as fleet:
                fleet.model.forget(keep_bodies=False)
                killing = FleetRun(fleet, plan)
                await watched(killing, fleet, given)
                await fleet.stop()
                return killing.figures
        finally:
            if given.log:
                given.log.mkdir(parents=True, exist_ok=True)
                for log in folder.glob("replica-*/log"):
                    shutil.copyfile(log, given.log / f"{log.parent.name}.log")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m bench.kills", description=__doc__)
    made.add_argument("--kills", type=int, default=FULL_KILLS)
    made.add_argument("--talkers", type=int, default=3, help="people on each platform")
    made.add_argument("--steps", type=int, default=10, help="kills per step of the clock (0: none)")
    made.add_argument("--stops", type=int, default=100, help="kills per SIGSTOP of 35 s (0: none)")
    made.add_argument("--fulls", type=int, default=50, help="kills per full disk (0: none)")
    made.add_argument("--restarts", type=int, default=25, help="kills per restart of PostgreSQL (0: none)")
    made.add_argument("--cuts", type=int, default=25, help="kills per cut of all connections with it (0: none)")
    made.add_argument("--only", default="", help="the name of the only platform, such as wecom")
    made.add_argument("--report", type=Path, help="a file for all that is printed, written as it comes")
    made.add_argument("--log", type=Path, help="where to keep the service's log; a folder for several")
    made.add_argument("--replicas", type=int, default=1, help="services that share a PostgreSQL of the run")
    made.add_argument("--pace", type=float, default=3.0, help="seconds between two kills of several services")
    return made


if __name__ == "__main__":
    wanted = parser().parse_args()
    done = asyncio.run(kill(wanted))
    raise SystemExit(1 if done.faults else 0)
