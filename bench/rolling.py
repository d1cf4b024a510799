"""Upgrade three services on one PostgreSQL database, one after the other, while people talk on five platforms.

`python -m bench.rolling` starts three processes of this version, and replaces each by one of the next version: a copy
of the program with another number and one more migration, which adds a column to `conversations`. Each gets SIGTERM,
ends by itself, and starts again in its data_dir. Counted is what was lost or doubled, and how long answers took before
and meanwhile. Some turns are longer than the time that a stop waits for turns: they go on in another process.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import re
import shutil
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.harness import Row, show
from bot.base.version import VERSION
from bot.database.migrate import head_revision
from tests.support.fleet import Fleet
from tests.support.forked_services import OWN, ROOT
from tests.support.rigs.base import Rig
from tests.support.service_process import ask, bash

LOOK = 0.05  # seconds between two looks for an answer
FINISHED_LOOK = 0.25  # seconds between two looks for ended turns
TOPIC_LASTS = 6  # messages, then a talker begins another conversation
REST = 120.0  # seconds that the last answers may take
LONG_TOKENS, LONG_TOKEN_MS = 60, 300  # of an answer that takes 18 s
SETTINGS = {
    "limits": {"flood_messages": 1_000_000, "earlier_messages": 0, "notify_seconds": 0},
    "sandbox": {"provider": "local"},
}
COLUMN = """
import sqlalchemy as sa
from alembic import op
revision = "9990"
down_revision = "{head}"
ADDITIVE = True


def upgrade() -> None:
    op.add_column("conversations", sa.Column("colour", sa.Text(), nullable=False, server_default="grey"))
"""
FINISHED = (
    "SELECT i.id AS id, convert_from(i.payload, 'UTF8') AS text FROM inbox i JOIN runs r ON r.id=i.run"
    " WHERE r.finished IS NOT NULL AND i.id>(SELECT max(id)-2000 FROM inbox)"
)
WORD = re.compile(r"\b(?:telegram|slack|discord|feishu|dingtalk)-\d+-\d+\b")


def next_version(folder: Path) -> Path:
    """Return a copy of the program that is the next version of it."""
    for name in OWN:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for each in ROOT.iterdir():
        if each.name not in (*OWN, "tests", "bench") and not each.name.startswith("."):
            (folder / each.name).symlink_to(each)
    front, _dot, last = VERSION.rpartition(".")
    version = folder / "bot" / "base" / "version.py"
    version.write_text(version.read_text().replace(VERSION, f"{front}.{int(last) + 1}"))
    migration = folder / "bot" / "database" / "migrations" / "versions" / "9990_colours.py"
    migration.write_text(COLUMN.format(head=head_revision()))
    return folder


class RollingFleet(Fleet):
    """The services, of which one after the other is replaced. `ended` counts those that ended by themselves."""

    ended = 0

    async def all_serve(self) -> None:
        """Wait until each has loaded its agent, as whoever upgrades waits for the probe of readiness.

        One that ended by itself, because its lease was lost on a busy machine, is started again, as a supervisor does.
        """
        async with asyncio.timeout(120):
            while self.rows("SELECT count(*) FROM replicas WHERE state='serving'") != [(self.count,)]:
                for each in self.replicas:
                    if each.process and each.process.returncode is not None:
                        self.ended += 1
                        await each.start()
                await asyncio.sleep(0.2)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that came. Times are in seconds of time.monotonic()."""

    word: str
    asked: float
    took: float
    is_long: bool


@dataclass(slots=True)
class Talk:
    """What people said, in which topics, and what they got."""

    asked: dict[str, tuple[str, int, str]] = field(default_factory=dict)  # word → platform, topic, what ends the answer
    effects: list[str] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    finished: set[str] = field(default_factory=set)  # words whose turn has ended


@dataclass(frozen=True, slots=True)
class Person:
    """Asks, waits for the answer, thinks a little, and asks again."""

    platform: str
    number: int
    rig: Rig

    async def talk(self, talk: Talk, stop: asyncio.Event, dice: random.Random, long_share: float) -> None:
        """Talk until `stop`; wait for the last answer."""
        for count in range(1 << 30):
            if stop.is_set():
                return
            topic = self.number * 1000 + count // TOPIC_LASTS + 1 if self.number else 0
            word = f"{self.platform}-{self.number}-{count}"
            is_long = dice.random() < long_share
            if is_long:
                directive = ask(word=f"{word}w", tokens=LONG_TOKENS, tok_ms=LONG_TOKEN_MS, id=word)
                expected = f"{word}w{LONG_TOKENS - 1}"
            else:
                steps, expected = [], f"answer {word}!"
                if dice.random() < 0.3:
                    talk.effects.append(word)
                    steps = [bash(f"echo {word} >> /mnt/user-data/workspace/effects")]
                directive = ask(steps=steps, text=expected, id=word)
            began = time.monotonic()
            talk.asked[word] = (self.platform, topic, expected)
            self.rig.mutter(directive, topic, mention=bool(topic))
            while word not in talk.finished or expected not in "\n".join(self.rig.visible(topic)):
                await asyncio.sleep(LOOK)
            talk.answers.append(Answer(word, began, time.monotonic() - began, is_long))
            await asyncio.sleep(dice.uniform(0.5, 2.0))


async def watch_finished(url: str, talk: Talk) -> None:
    """Note which turns have ended: what is written before would be taken into the same turn."""
    from bot.database.postgres_session import reading

    with reading(url, snapshot=False) as execute:
        while True:
            for row in await asyncio.to_thread(execute, FINISHED, {}):
                talk.finished.update(WORD.findall(row["text"]))
            await asyncio.sleep(FINISHED_LOOK)


@dataclass(slots=True)
class Figures:
    """What came out."""

    asked: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    effects: int = 0
    strange: list[str] = field(default_factory=list)
    before: list[float] = field(default_factory=list)  # seconds of an answer
    during: list[float] = field(default_factory=list)
    long_before: list[float] = field(default_factory=list)
    long_during: list[float] = field(default_factory=list)
    slowest: list[str] = field(default_factory=list)  # of the short ones
    resumed: int = 0  # turns that went on in another process
    stops: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)

    def of(self, *, is_long: bool, meanwhile: bool) -> list[float]:
        """Return the list for such answers."""
        short, long = (self.before, self.during), (self.long_before, self.long_during)
        return (long if is_long else short)[meanwhile]

    def rows(self) -> list[Row]:
        """Return the table."""
        note = f"{self.asked} messages, {self.effects} effects, {self.resumed} turns went on elsewhere"
        rows = [
            Row("messages lost by a rolling upgrade", len(self.lost), "", goal=0, note=note),
            Row("answers or effects doubled", len(self.doubled), "", goal=0),
            Row("anything else that must not be", len(self.strange), "", goal=0),
        ]
        for name, seconds in (
            ("before", self.before),
            ("meanwhile", self.during),
            ("before, of 18 s", self.long_before),
            ("meanwhile, of 18 s", self.long_during),
        ):
            if seconds:
                note = f"p95 {quantile(seconds, 0.95):.2f}, max {max(seconds):.2f}, n={len(seconds)}"
                rows.append(Row(f"answer {name}, p50", statistics.median(seconds), "s", note=note))
        for name, seconds in (("stop", self.stops), ("start", self.starts)):
            if seconds:
                rows.append(Row(f"{name} of one, the longest", max(seconds), "s"))
        return rows


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


async def measure(given: argparse.Namespace) -> Figures:
    """Run it, print the table, and return the figures."""
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    figures, talk, dice = Figures(), Talk(), random.Random(given.seed)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fawn-rolling-")))
        (tree := folder / "next").mkdir()
        program = next_version(tree) if given.upgrade else ROOT
        async with RollingFleet.open(folder, **SETTINGS) as service:
            assert isinstance(service, RollingFleet)
            people = [
                Person(name, number, service.rigs[name])
                for name in service.names
                for number in range(given.talkers if "topics" in service.rigs[name].can else 1)
            ]
            await service.all_serve()
            quiet = asyncio.Event()
            watching = asyncio.create_task(watch_finished(service.url, talk), name="finished")
            talks = [asyncio.create_task(each.talk(talk, quiet, dice, given.long)) for each in people]
            await asyncio.sleep(given.before)
            rolled = time.monotonic()
            for each in service.replicas:
                stopped, started, code = await each.replace(program)
                began = time.monotonic()
                await service.all_serve()
                started += time.monotonic() - began
                figures.stops.append(stopped)
                figures.starts.append(started)
                if code:
                    figures.strange.append(f"exit code {code}")
                print(f"{time.monotonic() - rolled:.1f}: stop {stopped:.1f} s, start {started:.1f} s", flush=True)
                await asyncio.sleep(given.between)
            ended = time.monotonic()
            quiet.set()
            await asyncio.wait(talks, timeout=REST)
            for task in talks:
                task.cancel()
            for answered in talk.answers:
                after = answered.asked + answered.took > rolled and answered.asked < ended
                figures.of(is_long=answered.is_long, meanwhile=after).append(answered.took)
            figures.slowest = [
                f"{each.word} took {each.took:.1f} s, asked {each.asked - rolled:.1f} s after the first stop"
                for each in sorted(talk.answers, key=lambda each: -each.took)
                if not each.is_long
            ][:8]
            count(figures, talk, service)
            watching.cancel()
            if given.log:
                Path(given.log).write_text(service.log())
    show("Rolling upgrade", figures.rows())
    print("\n".join(figures.slowest))
    print("\n".join([*figures.lost, *figures.doubled, *figures.strange]) or "no fault")
    print(f"load {os.getloadavg()[0]:.1f}")
    return figures


def count(figures: Figures, talk: Talk, service: RollingFleet) -> None:
    """Count what was asked, and how often it was answered."""
    figures.asked = len(talk.asked)
    answered = {each.word for each in talk.answers}
    for word, (platform, topic, expected) in talk.asked.items():
        shown = "\n".join(service.rigs[platform].visible(topic))
        times = shown.count(expected)
        if word not in answered or not times:
            figures.lost.append(f"lost {word}: {shown[-300:]!r}")
        elif times > 1:
            figures.doubled.append(f"doubled {word}: {times} times, {shown[-300:]!r}")
    seen: Counter[str] = Counter()
    for file in service.effect_files():
        seen.update(file.read_text().split())
    figures.effects = len(seen)
    figures.doubled += [f"effect {word} {times} times" for word, times in seen.items() if times > 1]
    figures.lost += [f"no effect {word}" for word in talk.effects if word not in seen]
    figures.strange += [f"{service.ended} services ended by themselves"] if service.ended else []
    dead = service.rows("SELECT kind, error FROM outbox WHERE state=3")
    figures.strange += [f"dead letter {row}" for row in dead]
    attempts = service.rows("SELECT id, attempt FROM runs WHERE attempt>1")
    figures.strange += [f"run {row} counted as interrupted" for row in attempts]
    figures.resumed = service.log().count("turn.suspended")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m bench.rolling", description=__doc__)
    made.add_argument("--talkers", type=int, default=2, help="people on each platform")
    made.add_argument("--before", type=float, default=60.0, help="seconds before the upgrade")
    made.add_argument("--between", type=float, default=5.0, help="seconds between the start of one and the next stop")
    made.add_argument("--long", type=float, default=0.1, help="share of answers that take 18 s")
    made.add_argument("--seed", type=int)
    made.add_argument("--same", dest="upgrade", action="store_false", help="restart the same version")
    made.add_argument("--log", help="where to keep the services' logs")
    return made


async def main() -> int:
    running = asyncio.create_task(measure(parser().parse_args()))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    figures = await running
    return bool(figures.lost or figures.doubled or figures.strange)


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
