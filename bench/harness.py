"""Shared parts of the benchmarks: fakes in processes, turns, times and the table.

All times are time.monotonic(), which the processes of a machine share: the fakes note when a call came and when it was
answered, and nothing is measured inside the service.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from bench.service import Kind, Service, Setup, started
from tests.fakes.model import words
from tests.fakes.process import Remote, process

PAUSE = 0.05  # seconds between two turns of one chat at a time
_numbers = itertools.count(1)
_chats = itertools.count(1000)


@dataclass(frozen=True, slots=True)
class Turn:
    """The times of one turn, in seconds of time.monotonic()."""

    received: float  # the update was handed out
    asked: float  # the (first) request reached the model
    sign: float  # the first call for this chat reached the platform
    first_token: float
    first_visible: float
    last_token: float  # the model's last byte
    final_visible: float  # the call that made the whole answer visible was answered
    thinking: float  # all of the model's own time
    gaps: tuple[float, ...]  # between two model calls of the turn: tools
    calls: int  # platform calls, chat actions left out

    @property
    def overhead(self) -> float:
        """The duration of the turn without the model's own time."""
        return self.final_visible - self.received - self.thinking


@dataclass(slots=True)
class Job:
    """One message: a directive for the model and the exact expected answer."""

    chat: int
    tokens: int = 20
    pace: float = 0.0  # seconds between two tokens
    tools: int = 0  # steps that run a sandbox command each
    id: str = field(default_factory=lambda: f"t{next(_numbers)}")

    @property
    def text(self) -> str:
        commands = [f"echo step {number}" for number in range(self.tools)]  # equal ones would look like a loop
        directive = {"id": self.id, "tokens": self.tokens, "word": f"{self.id}_", "tok_ms": self.pace * 1000}
        return f"go ::{orjson.dumps({**directive, 'steps': [_bash(c) for c in commands]}).decode()}"

    @property
    def answer(self) -> str:
        return words(self.tokens, f"{self.id}_")


def _bash(command: str) -> dict[str, object]:
    return {"calls": [{"name": "bash", "args": {"command": command}}]}


def new_chats(count: int) -> list[int]:
    """Return private chats that have not been used yet."""
    return [next(_chats) for _ in range(count)]


@dataclass(slots=True)
class World:
    """The fake Telegram and the fake model, each in its own process."""

    telegram: Remote
    model: Remote

    @asynccontextmanager
    async def service(
        self,
        kind: Kind,
        *,
        rates: dict[str, float] | None = None,
        tty: bool = False,
        waiting: Sequence[Job] = (),
        profile: Path | None = None,
        prepare: Callable[[Path], None] | None = None,
        memory: bool = False,
        more: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[Service]:
        """Start a fresh service and wait until it polls. The `waiting` jobs are sent before it starts; `prepare`
        creates its data folder."""
        await self.telegram("forget")
        await self.model("forget", keep_bodies=False)
        await self.send(waiting)
        with tempfile.TemporaryDirectory(prefix="fawn-bench-") as folder:
            setup = Setup(
                self.telegram.base_url, self.model.base_url, Path(folder), rates or {}, tty, profile, memory, more or {}
            )
            if prepare:
                await asyncio.to_thread(prepare, Path(folder) / "data")
            async with started(kind, setup) as service:
                await self.listening(service)
                yield service

    async def listening(self, service: Service, seconds: float = 60) -> None:
        """Wait for the first getUpdates. Raises RuntimeError if the service ended instead."""
        async with asyncio.timeout(seconds):
            while not await self.telegram("poll_count"):
                if service.process.returncode is not None:
                    output = service.data.parent / "output.txt"
                    raise RuntimeError(f"the service did not start:\n{output.read_text()[-2000:]}")
                await asyncio.sleep(0.01)

    async def first_poll(self) -> float:
        """Return when the first getUpdates arrived."""
        at: float = await self.telegram("first_poll")
        return at

    async def send(self, jobs: Sequence[Job]) -> None:
        """Send one message in each job's chat, all at once."""
        await self.telegram("bulk", texts={str(job.chat): job.text for job in jobs})

    async def ask(self, jobs: Sequence[Job], *, send: bool = True, seconds: float = 60) -> None:
        """Send all jobs and wait until each answer is visible or the time is over (see `check`)."""
        if send:
            await self.send(jobs)
        waits = (self.telegram("wait", chat=j.chat, text=j.answer.split()[-1], seconds=seconds) for j in jobs)
        await asyncio.gather(*waits, return_exceptions=True)

    async def turn(self, job: Job) -> Turn:
        """Run one job alone and return its times, after a short pause for the work that follows the answer."""
        await self.ask([job])
        await asyncio.sleep(PAUSE)
        return await self.times(job)

    async def times(self, job: Job) -> Turn:
        """Return the times of an answered job."""
        requests = await self.model("requests", id=job.id)
        deliveries = await self.telegram("deliveries", chat=job.chat)
        at = deliveries[-1]["at"][0]
        calls = await self.telegram("calls_of", chat=job.chat, since=at)
        shown = [c for c in calls if c["status"] == 200 and c["args"].get("text")]
        first = next((c for c in shown if f"{job.id}_0" in c["args"]["text"]), None)
        final = next((c for c in shown if job.answer in c["args"]["text"]), None)
        if first is None or final is None:
            raise RuntimeError(f"{job.id} was not answered: {await self.telegram('texts', chat=job.chat)}")
        return Turn(
            received=at,
            asked=requests[0]["at"],
            sign=calls[0]["at"],
            first_token=requests[-1]["first"],
            first_visible=first["done"],
            last_token=requests[-1]["end"],
            final_visible=final["done"],
            thinking=sum(r["end"] - r["at"] for r in requests),
            gaps=tuple(b["at"] - a["end"] for a, b in itertools.pairwise(requests)),
            calls=sum(1 for c in calls if c["method"] != "sendChatAction"),
        )

    async def makespan(self, job: Job) -> tuple[float, float]:
        """Return when the message arrived and when the last change of its reply was visible."""
        calls = await self.telegram("calls_of", chat=job.chat)
        shown = [call["done"] for call in calls if call["status"] == 200 and call["args"].get("text")]
        return await self.telegram("sent_at", chat=job.chat), max(shown, default=float("inf"))

    async def check(self, jobs: Sequence[Job]) -> Exact:
        """Compare the visible replies with the model's text, word by word. One job per chat."""
        exact = Exact()
        for job in jobs:
            shown = await self.telegram("texts", chat=job.chat)
            exact.count(shown, job.answer)
        return exact


@dataclass(slots=True)
class Exact:
    """The number of replies that are complete and correct; `lost` lack words, `doubled` repeat words or messages."""

    replies: int = 0
    right: int = 0
    lost: int = 0
    doubled: int = 0

    def count(self, shown: Sequence[str], answer: str) -> None:
        """Count a reply: the visible messages of it, and the answer that was expected."""
        got, wanted = " ".join(shown).split(), answer.split()
        self.replies += 1
        self.right += list(shown) == [answer]
        self.lost += len(set(wanted) - set(got)) > 0
        self.doubled += len(got) > len(set(got)) or len(shown) > 1

    def __str__(self) -> str:
        return f"{self.right}/{self.replies} exact, {self.lost} lost, {self.doubled} doubled"


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    """Start both fakes."""
    async with process("tests.fakes.telegram") as telegram, process("tests.fakes.model") as model:
        yield World(telegram, model)


# ---------------------------------------------------------------- figures


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a result: the figure, the floor (if there is one) and the goal: a maximum, or the least."""

    name: str
    figure: float
    unit: str = "ms"
    floor: float | None = None
    goal: float | None = None
    note: str = ""
    at_least: bool = False

    @property
    def missed(self) -> bool:
        if self.goal is None:
            return False
        return not (self.figure >= self.goal if self.at_least else self.figure <= self.goal)

    def markdown(self) -> str:
        """Return the row for docs/benchmarks.md."""
        floor = "" if self.floor is None else f"{self.floor:.3g}"
        sign = "≥" if self.at_least else "≤"
        goal = "" if self.goal is None else f"{sign} {self.goal:g}{' **missed**' if self.missed else ''}"
        return f"| {self.name.strip()} | {self.figure:.3g} {self.unit} | {floor} | {goal} | {self.note} |"

    def __str__(self) -> str:
        floor = "" if self.floor is None else f"{self.floor:.4g}"
        ratio = f"{self.figure / self.floor:.2f}x" if self.floor else ""
        goal = "" if self.goal is None else f"{'>=' if self.at_least else '<='} {self.goal:g}"
        verdict = "" if self.goal is None else "MISSED" if self.missed else "ok"
        cells = f"{self.figure:10.4g} {self.unit:5} {floor:>9} {ratio:>8} {goal:>9} {verdict:7}"
        return f"{self.name:52} {cells} {self.note}".rstrip()


HEAD = f"{'':52} {'figure':>10} {'unit':5} {'floor':>9} {'ratio':>8} {'goal':>9}"


def show(title: str, rows: Sequence[Row]) -> None:
    """Print a table."""
    print(f"\n{title}\n{HEAD}", flush=True)
    for row in rows:
        print(row, flush=True)


def conclude(rows: Sequence[Row]) -> int:
    """Say which goals were missed; return the exit code of a benchmark, which is 1 then."""
    missed = [row for row in rows if row.missed]
    for row in missed:
        print(f"missed: {row}")
    goals = sum(row.goal is not None for row in rows)
    print(f"{len(missed)} of {goals} goals missed" if missed else f"all {goals} goals met" if goals else "no goals")
    return 1 if missed else 0


def median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else float("nan")


def p99(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] if ordered else float("nan")


def ms(turns: Sequence[Turn], span: Callable[[Turn], float]) -> list[float]:
    """Return one span of every turn, in milliseconds."""
    return [span(turn) * 1000 for turn in turns]
