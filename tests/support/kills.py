"""People talk on five platforms, or on one, while the service is killed again and again.

Each message must be answered once, and each command must have its effect at most once: `check` counts. Besides kill -9,
the wall clock steps, the process is paused (SIGSTOP), the disk fills up, a gateway answers 504 after the effect,
and the answer to a post comes late.
"""

from __future__ import annotations

import asyncio
import random
import re
import signal
import sqlite3
import struct
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bot.database.database import StorageError
from tests.support.all_platforms import AllPlatforms
from tests.support.postgres import shared_server, sql_on_server
from tests.support.service_process import ask, bash

MARKED = frozenset({"telegram", "wechat", "wecom", "whatsapp"})  # a repeated post is marked as such there
FAILED = "⚠️"  # an honest failure: only where the disk had no room
APOLOGY = "I can't save messages right now"  # likewise
PROGRESS = ("▸ ", "✓ ", "⏳ ", "…")  # of an unrecorded post: likewise, and where Telegram's answer was lost
UNCONFIRMED = "and no answer came"  # in a dead letter: each try of a post was killed, or answered by a 504
UNCONFIRMED_NOTICE = "I sent "  # the notice in the chat
SEALED = "_Continues below._"  # of a stream whose ten minutes are over, which a step of the clock can bring about
UNDER_WAY = ": in_progress"  # the same on Slack
STEPS = re.compile(r"\n+(-# )?✅ .*|^<think>.*?</think>\n", re.DOTALL)  # what stays of the steps around an answer
REPEAT = re.compile(r"^↻[^\n]*?:\s*")
LOOK = 0.1  # seconds between two checks for an answer
TOPIC_LASTS = 6  # messages, then a talker starts a new conversation


@dataclass(frozen=True, slots=True)
class Plan:
    """The faults of a run. The rarer kinds are spread evenly among the kills."""

    kills: int
    life: tuple[float, float] = (0.1, 2.5)  # seconds of a service between its start and its death
    unborn: float = 0.2  # so many are killed before they are ready
    talkers: int = 2  # on each platform, the first in the direct chat; one where there is only that chat
    gateway: float = 0.3  # chance of a 504 after the effect, per kill
    late: float = 0.3  # chance of a post that is answered late, per kill
    late_seconds: float = 0.6
    stops: int = 0
    stop_seconds: float = 35.0
    steps: int = 0
    fulls: int = 0
    full_seconds: float = 5.0
    restarts: int = 0  # of PostgreSQL's server, in the middle of everything
    cuts: int = 0  # of connections with it
    cut_shares: tuple[float, ...] = (1.0,)  # so many of them
    away: tuple[float, float] = (0.0, 4.0)  # seconds between the end of the server and its start
    clock: Path | None = None  # the file with the clock's step (bench/clock.c)
    down: tuple[float, float] = (0.0, 3.0)  # seconds until one of several is started again
    think: tuple[float, float] = (0.0, 0.0)  # seconds between an answer and the next message
    rest: float = 120.0  # seconds that the last answers may take


@dataclass(slots=True)
class Figures:
    """The counts of a run."""

    kills: int = 0
    stops: int = 0
    steps: int = 0
    fulls: int = 0
    restarts: int = 0
    cuts: int = 0
    gateways: int = 0
    late: int = 0
    asked: int = 0
    answered: int = 0
    repeats: int = 0  # marked ones, on Telegram
    effects: int = 0
    interrupted: int = 0  # commands without an effect: the model was told that their outcome is unknown
    failed: int = 0  # turns that ended with an honest failure
    left: int = 0  # failure notices, and progress messages that were not removed
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)  # seconds from a message to its answer
    told: int = 0  # notices of those, where a notice is not repeated
    unconfirmed: int = 0  # answers that every attempt showed without a confirmation: dead letters with a notice
    strange: list[str] = field(default_factory=list)  # other visible texts
    budget: list[str] = field(default_factory=list)  # what is not booked as it was used
    ended: list[str] = field(default_factory=list)  # the last words of services that ended by themselves

    @property
    def faults(self) -> list[str]:
        """Return the number of everything that must not happen."""
        named = {"lost": self.lost, "doubled": self.doubled, "strange": self.strange, "ended": self.ended}
        named |= {"budget": self.budget}
        return [f"{name}: {each}" for name, these in named.items() for each in these]

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {self.steps} clock steps, {self.stops} SIGSTOPs, {self.fulls} full disks,"
            f" {self.restarts} restarts of the database, {self.cuts} cuts of its connections,"
            f" {self.gateways} times 504, {self.late} late posts: {self.asked} messages, {self.answered} answered,"
            f" {self.failed} of them by an"
            f" honest failure; {self.repeats} marked repeats, {self.effects} effects ({self.interrupted} interrupted),"
            f" {self.left} left over, {self.unconfirmed} unconfirmed; {len(self.lost)} lost, {len(self.doubled)}"
            f" doubled, {len(self.strange)} strange, {len(self.ended)} ended by themselves"
        )


@dataclass(slots=True)
class Talker:
    """A person who asks, waits for the answer, and asks again."""

    platform: str
    number: int
    asked: list[tuple[int, str]] = field(default_factory=list)  # topic, word
    effects: list[str] = field(default_factory=list)
    think: tuple[float, float] = (0.0, 0.0)
    answered: int = 0
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(1 << 30)))

    async def talk(self, service: AllPlatforms, stop: asyncio.Event, figures: Figures, dice: random.Random) -> None:
        """Talk until the run ends; wait for the last answer."""
        while not stop.is_set():
            number = next(self.numbers)
            topic = self.number * 1000 + number // TOPIC_LASTS + 1 if self.number else 0
            word = f"{self.platform}-{self.number}-{number}"
            steps = []
            if dice.random() < 0.5:
                self.effects.append(word)
                steps = [bash(f"echo {word} >> /mnt/user-data/workspace/effects")]
            text = ask(steps=steps, text=answer(word), delay_ms=dice.choice((0, 50, 300)), id=word)
            rig = service.rigs[self.platform]
            failures = "\n".join(rig.visible(topic)).count(FAILED)
            self.asked.append((topic, word))
            figures.asked += 1
            asked = time.monotonic()
            rig.mutter(text, topic, mention=bool(topic))
            while answer(word) not in (shown := "\n".join(rig.visible(topic))) and shown.count(FAILED) == failures:
                await asyncio.sleep(LOOK)
            figures.answered += 1
            self.answered += 1
            figures.waits.append(time.monotonic() - asked)
            while not ended(service, word):  # what is written before would be taken into the same turn
                await asyncio.sleep(LOOK)
            await asyncio.sleep(dice.uniform(*self.think))


def ended(service: AllPlatforms, word: str) -> bool:
    """Whether the turn of this message has ended."""
    latest = f"(SELECT run, {service.payload_text} AS text FROM inbox ORDER BY id DESC LIMIT 300)"  # noqa: S608 — constants
    sql = f"SELECT 1 FROM {latest} i JOIN runs r ON r.id=i.run WHERE r.finished IS NOT NULL"  # noqa: S608 — constants
    try:
        return bool(service.rows(f"{sql} AND i.text LIKE '%{answer(word)}%'"))
    except (sqlite3.OperationalError, StorageError):  # a full disk has no room for a reader; a server restarts
        return False


def answer(word: str) -> str:
    return f"answer {word}!"


class KillRun:
    """One run. `stop` ends it early, with the figures so far."""

    def __init__(self, service: AllPlatforms, plan: Plan, seed: int | None = None) -> None:
        self.figures = Figures()
        self.stop = asyncio.Event()
        self._service, self._plan = service, plan
        self._dice = random.Random(seed)
        self._talkers = [
            Talker(name, number, think=plan.think)
            for name in service.names  # two people in one chat without threads would be answered together
            for number in range(plan.talkers if "topics" in service.rigs[name].can else 1)
        ]

    async def run(self) -> Figures:
        """Run all of it, then count."""
        figures, quiet = self.figures, asyncio.Event()
        talks = [
            asyncio.create_task(
                each.talk(self._service, quiet, figures, self._dice), name=f"{each.platform} {each.number}"
            )
            for each in self._talkers
        ]
        try:
            await self._trouble()
        finally:
            quiet.set()
        await asyncio.wait(talks, timeout=self._plan.rest)
        for task in talks:
            if not task.done():
                task.cancel()
            elif error := task.exception():  # who stopped talking early has measured less than the kills promise
                figures.strange.append("".join(traceback.format_exception(error, limit=-6)))
        try:
            await self._service.quiet(self._plan.rest)
        except TimeoutError as error:
            figures.strange.append(str(error))
        self._note_end()
        self._check()
        if figures.failed and not figures.fulls:
            figures.strange.append(f"{figures.failed} turns failed")
        return figures

    async def _trouble(self) -> None:
        plan, dice, figures = self._plan, self._dice, self.figures
        while figures.kills < plan.kills and not self.stop.is_set():
            share = (figures.kills + 1) / (plan.kills + 1)
            self._trouble_wires()
            await asyncio.sleep(dice.uniform(*plan.life))
            if figures.steps < int(plan.steps * share + 0.5):
                self._step(dice.uniform(-3600, 3600))
            if figures.stops < int(plan.stops * share + 0.5):
                await self._pause()
            if figures.fulls < int(plan.fulls * share + 0.5):
                await self._fill()
            if figures.cuts < int(plan.cuts * share + 0.5):
                await self._cut()
            if figures.restarts < int(plan.restarts * share + 0.5):
                await self._restart_database()
            await self._kill()
            while dice.random() < plan.unborn:
                await self._service.spawn("run", "--config", "config.yaml")
                await asyncio.sleep(dice.uniform(0.02, 1.0))
                await self._kill()
            await self._start()

    def _trouble_wires(self) -> None:
        """Have the next post somewhere take effect with an answer that is none, or late."""
        plan, dice = self._plan, self._dice
        if dice.random() < plan.gateway:
            self._service.rigs[dice.choice(self._service.names)].wire.fault("error", "post", code=504, after=True)
            self.figures.gateways += 1
        if dice.random() < plan.late:
            wire = self._service.rigs[dice.choice(self._service.names)].wire
            wire.fault("slow", "post", seconds=plan.late_seconds, after=True)
            self.figures.late += 1

    async def _start(self) -> None:
        """Start it and wait until all channels listen; the next kill ends one that does not."""
        try:
            await self._service.start()
        except AssertionError:
            if self._service.process and self._service.process.returncode is None:
                self.figures.strange.append("a start that was not ready in time")

    async def _kill(self) -> None:
        self._note_end()
        await self._service.kill()
        self.figures.kills += 1

    def _note_end(self) -> None:
        """Record that the service ended without being killed."""
        process = self._service.process
        if process and process.returncode is not None:
            self.figures.ended.append(f"exit {process.returncode}: …{self._service.log()[-600:]}")

    def _step(self, seconds: float) -> None:
        assert self._plan.clock
        with self._plan.clock.open("r+b") as file:  # never shorter: it is mapped
            file.write(struct.pack("d", seconds))
        self.figures.steps += 1

    async def _pause(self) -> None:
        """Pause the process, as a suspended laptop or a migrated virtual machine does."""
        process = self._service.process
        if process and process.returncode is None:
            process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(self._plan.stop_seconds)
            process.send_signal(signal.SIGCONT)
            await asyncio.sleep(2)
            self.figures.stops += 1

    async def _fill(self) -> None:
        """Fill the disk of data_dir for a while."""
        ballast = self._service.data / "ballast"
        try:
            with ballast.open("wb", buffering=0) as file:
                while file.write(bytes(1 << 20)) == 1 << 20:
                    pass
        except OSError:
            pass
        await asyncio.sleep(self._plan.full_seconds)
        ballast.unlink()
        await asyncio.sleep(2)
        self.figures.fulls += 1

    async def _cut(self) -> None:
        """Cut connections with PostgreSQL, as a router that is replaced does."""
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name='fawn' AND random()<"
        cut += str(self._dice.choice(self._plan.cut_shares))
        await asyncio.to_thread(sql_on_server, shared_server(), cut)
        await asyncio.sleep(self._dice.uniform(*self._plan.life))
        self.figures.cuts += 1

    async def _restart_database(self) -> None:
        """Restart PostgreSQL, as an operator does who upgrades it: every connection is cut."""
        server = shared_server()
        await asyncio.to_thread(server.stop)
        await asyncio.sleep(self._dice.uniform(*self._plan.away))
        server.start()
        await asyncio.sleep(self._dice.uniform(*self._plan.life))
        self.figures.restarts += 1

    # ------------------------------------------------------------ the count

    def _check(self) -> None:
        figures = self.figures
        for talker in self._talkers:
            for topic in sorted({topic for topic, _ in talker.asked}):
                words = [word for at, word in talker.asked if at == topic]
                self._check_chat(talker.platform, topic, words)
        files = self._service.effect_files()
        seen = Counter(line for file in files for line in file.read_text().split())
        figures.effects = len(seen)
        figures.doubled += [f"effect {word}" for word, count in seen.items() if count > 1]
        figures.interrupted = len({word for talker in self._talkers for word in talker.effects} - seen.keys())
        rows = self._service.rows("SELECT kind, error FROM outbox WHERE state=3")
        rows += self._service.rows("SELECT kind, error FROM inbox WHERE state=3")
        unconfirmed = [row for row in rows if UNCONFIRMED in row[1]]  # posted twice, and never answered but by a 504
        figures.unconfirmed += len(unconfirmed)
        figures.strange += [f"dead letter {row}" for row in rows if row not in unconfirmed]
        if figures.told > len(unconfirmed):
            figures.strange.append(f"{figures.told} notices of {len(unconfirmed)} unconfirmed answers")
        if len(unconfirmed) > figures.gateways + figures.kills // 100:
            figures.strange.append(f"{len(unconfirmed)} unconfirmed answers after {figures.gateways} times 504")

    def _tolerated(self, platform: str) -> list[str]:
        """Return how texts beside the answers may begin."""
        if self.figures.fulls or self.figures.restarts or self.figures.cuts:
            return [APOLOGY, *PROGRESS]
        return [*PROGRESS] if platform in MARKED else []

    def _check_chat(self, platform: str, topic: int, words: list[str]) -> None:
        figures = self.figures
        shown = [STEPS.sub("", text) for text in self._service.rigs[platform].visible(topic)]
        whole, exact = Counter(REPEAT.sub("", text) for text in shown if FAILED not in text), Counter(shown)
        failed = len(shown) - whole.total()
        for word in words:
            expected = answer(word)
            times = whole.pop(expected, 0)
            if not times and failed:
                failed -= 1
                figures.failed += 1
            elif not times:
                figures.lost.append(f"{word}: {[text[:80] for text in shown][-3:]}")
            elif exact[expected] > 1 or (times > 1 and platform not in MARKED):
                figures.doubled.append(f"{word}: {[text[:80] for text in shown if expected in text]}")
            else:
                figures.repeats += times - 1
        known = self._tolerated(platform)
        known += [UNCONFIRMED_NOTICE]
        figures.told += sum(text.startswith(UNCONFIRMED_NOTICE) for text in shown if platform not in MARKED)
        endings = (SEALED,) if platform == "wecom" else ()
        passing = [text for text in whole if text.startswith(tuple(known)) or text.endswith(endings)]
        passing += [text for text in whole if figures.fulls and UNDER_WAY in text and text not in passing]
        figures.left += len(passing)
        figures.strange += [f"{platform} {topic}: {text[:200]!r}" for text in whole.keys() - set(passing)]
        figures.strange += [f"{platform} {topic}: {failed} more failures than messages without an answer"] * (
            failed > 0
        )
