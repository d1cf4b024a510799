"""People talk on five platforms while the services of a fleet are killed, paused, and cut off from their database.

Beside what `kills.py` counts: how long it takes until another service goes on with a turn whose service was killed,
and whether budgets have exactly what the model was asked for. A service that ends by itself because its lease is over
is started again, as a supervisor does; every other end is a fault.
"""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from bot.database.database import StorageError
from bot.main.startup import LEASE_LOST
from bot.storage.runs import SUSPICIOUS_INTERRUPTIONS
from tests.support.fleet import Fleet, Replica
from tests.support.kills import MARKED, PROGRESS, Figures, KillRun, Plan

SOON = 15.0  # seconds in which a turn is gone on with
LOOK = 0.1  # seconds between two looks who goes on
HELD = """
SELECT r.id, r.attempt FROM runs r JOIN conversations c ON c.key=r.conversation JOIN replicas p ON p.id=c.owner
WHERE r.state='running' AND p.host='{host}'"""
WORDS = """
SELECT r.id, i.text FROM runs r JOIN (SELECT run, {text} AS text FROM inbox WHERE run IS NOT NULL) i ON i.run=r.id"""
WORD = re.compile(r"answer ([\w-]+)!")
BUDGETS = {"budgets": [{"scope": "everything", "tokens": "900000M"}, {"scope": "person", "tokens": "900000M"}]}


@dataclass(slots=True)
class FleetFigures(Figures):
    """The counts of a run of several services."""

    takeovers: list[float] = field(default_factory=list)  # seconds
    again: list[float] = field(default_factory=list)  # likewise, where its next service was killed, too
    disturbed: list[float] = field(default_factory=list)  # likewise, where the database was restarted meanwhile
    suspects: list[float] = field(default_factory=list)  # likewise, where two deaths interrupted it: it is tried alone
    late_takeovers: list[str] = field(default_factory=list)  # which, to be found in the logs
    leases: int = 0  # services that ended because their lease was over
    calls: int = 0  # of the model, as it counts them
    cut_off: int = 0  # of these, whose tokens nobody read: they count with their input

    @property
    def all_takeovers(self) -> list[float]:
        """Return how long each took."""
        return self.takeovers + self.again + self.disturbed + self.suspects

    def table(self) -> str:
        """Return the figures as a table."""
        rows = [
            ("kills of a service", self.kills),
            ("pauses", self.stops),
            ("restarts of the database, cuts of its connections", f"{self.restarts}, {self.cuts}"),
            ("answers 504, late ones", f"{self.gateways}, {self.late}"),
            ("messages, answered", f"{self.asked}, {self.answered}"),
            ("lost", len(self.lost)),
            ("answers or effects doubled", len(self.doubled)),
            ("other texts that stay, and other faults", len(self.strange)),
            ("marked repeats, progress of unknown posts (where a repeat is marked)", f"{self.repeats}, {self.left}"),
            ("effects, commands that were interrupted", f"{self.effects}, {self.interrupted}"),
            ("answers without a confirmation", self.unconfirmed),
            ("calls of the model, cut off by a kill", f"{self.calls}, {self.cut_off}"),
            ("budgets that are not exact", len(self.budget)),
            ("services that ended with their lease, otherwise", f"{self.leases}, {len(self.ended)}"),
            ("taken over after a kill", times(self.takeovers)),
            ("… where the service that began again with its files was killed or paused", times(self.again)),
            ("… while the database was restarted", times(self.disturbed)),
            ("… of a run that two deaths interrupted, which is tried alone", times(self.suspects)),
            ("… in all", times(self.all_takeovers)),
            ("from a message to its answer", times(self.waits)),
        ]
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:{width}}  {value}" for name, value in rows]
        return "\n".join([*lines, *(f"late: {each}" for each in self.late_takeovers)])


def utc() -> str:
    """Return the time of the day as the logs have it."""
    return datetime.now(UTC).strftime("%H:%M:%S")


def share_of(ordered: Sequence[float], share: int) -> float:
    """Return what so many of a hundred do not exceed; 0 of none."""
    return ordered[min(len(ordered) - 1, len(ordered) * share // 100)] if ordered else 0.0


def times(seconds: Sequence[float]) -> str:
    """Return how long something took."""
    if not seconds:
        return "never"
    ordered = sorted(seconds)
    p50, p99 = share_of(ordered, 50), share_of(ordered, 99)
    return f"{len(ordered)} times: p50 {p50:.1f} s, p99 {p99:.1f} s, max {ordered[-1]:.1f} s"


@dataclass(slots=True)
class Life:
    """What the run knows of a service."""

    replica: Replica
    ready: bool = False
    killed: bool = False
    paused: bool = False
    pauses: int = 0  # so far
    losses: int = 0  # of its lease, so far


@dataclass(slots=True)
class Held:
    """A turn whose service was killed. `again`: so was the next one with its files, or it was paused."""

    host: str
    attempt: int
    killed: float
    again: bool = False


class FleetRun(KillRun):
    """One run of a fleet. `figures` has its counts."""

    figures: FleetFigures

    def __init__(self, fleet: Fleet, plan: Plan, seed: int | None = None) -> None:
        super().__init__(fleet, plan, seed)
        self.figures = FleetFigures()
        self._fleet = fleet
        self._lives = [Life(each, ready=True) for each in fleet.replicas]
        self._held: dict[int, Held] = {}  # by run
        self._restarted = 0.0  # when the database was
        self._tasks: list[asyncio.Task[None]] = []  # until the end
        self._pauses: list[asyncio.Task[None]] = []

    async def run(self) -> FleetFigures:
        """Run all of it, then count."""
        self._tasks += [asyncio.create_task(self._supervise(life), name="supervise") for life in self._lives]
        self._tasks.append(asyncio.create_task(self._watch(), name="watch"))
        try:
            await super().run()
        finally:
            for task in self._tasks:
                task.cancel()
            ends = await asyncio.gather(*self._tasks, return_exceptions=True)
        self.figures.strange += [repr(end) for end in ends if isinstance(end, Exception)]
        return self.figures

    async def _trouble(self) -> None:
        plan, dice, figures = self._plan, self._dice, self.figures
        await self._until_all_were_answered()
        while figures.kills < plan.kills and not self.stop.is_set() and not any(each.done() for each in self._tasks):
            share = (figures.kills + 1) / (plan.kills + 1)
            self._trouble_wires()
            await asyncio.sleep(dice.uniform(*plan.life))
            if figures.stops < int(plan.stops * share + 0.5) and (life := self._victim()):
                figures.stops += 1
                life.paused, life.ready = True, False
                self._pauses.append(asyncio.create_task(self._pause_one(life), name="pause"))
            if figures.cuts < int(plan.cuts * share + 0.5):
                await self._cut()
            if figures.restarts < int(plan.restarts * share + 0.5):
                self._restarted = time.monotonic()
                await self._restart_database()
            if life := self._victim():
                await self._kill_one(life)
        if self._pauses:
            await asyncio.wait(self._pauses)

    async def _until_all_were_answered(self) -> None:
        """Wait until everybody was answered: Discord does not show later who wrote for the first time."""
        async with asyncio.timeout(self._plan.rest):
            while not all(each.answered for each in self._talkers):
                await asyncio.sleep(LOOK)

    def _victim(self) -> Life | None:
        """Return a service that runs, ready or not, beside another one that is ready."""
        able = [each for each in self._lives if each.replica.runs and not each.paused and not each.killed]
        able = [each for each in able if any(other.ready for other in self._lives if other is not each)]
        return self._dice.choice(able) if able else None

    async def _kill_one(self, life: Life) -> None:
        life.killed, life.ready = True, False
        await life.replica.kill()
        self.figures.kills += 1
        killed = time.monotonic()
        self._note_again(life)
        for run, attempt in await self._read(HELD.format(host=life.replica.host)):
            self._held.setdefault(run, Held(life.replica.host, attempt, killed))

    def _note_again(self, life: Life) -> None:
        """Note that a service ends, or pauses, that was about to go on with turns of its earlier life."""
        for held in self._held.values():
            held.again = held.again or held.host == life.replica.host

    async def _pause_one(self, life: Life) -> None:
        """Pause one, as a suspended laptop or a migrated virtual machine does."""
        process = life.replica.process
        assert process
        life.pauses += 1
        self._note_again(life)
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(self._plan.stop_seconds)
        process.send_signal(signal.SIGCONT)
        life.paused = False

    async def _supervise(self, life: Life) -> None:
        """Start a service again whenever it has ended."""
        while True:
            assert life.replica.process
            code = await life.replica.process.wait()
            if not life.killed:
                self._note_own_end(life, code)
            life.ready = False
            await asyncio.sleep(self._dice.uniform(*self._plan.down))
            life.killed, pauses = False, life.pauses
            try:
                await life.replica.start()
            except AssertionError:
                if life.replica.runs and life.pauses == pauses:  # a start that is paused takes longer
                    self.figures.strange.append(f"a start that was not ready in time: {life.replica.log()[-600:]}")
            life.ready = life.replica.runs

    def _note_own_end(self, life: Life, code: int) -> None:
        log = life.replica.log()
        losses, life.losses = life.losses, log.count("replica.lease_lost")
        if code == LEASE_LOST and life.losses > losses:
            self.figures.leases += 1
        else:
            self.figures.ended.append(f"{life.replica.folder.name}, exit {code}: …{log[-600:]}")

    def _note_end(self) -> None:
        """`_supervise` notes them."""

    async def _watch(self) -> None:
        """Note when another service goes on with the turn of one that was killed."""
        while True:
            await asyncio.sleep(LOOK)
            if not self._held:
                continue
            ids = ",".join(map(str, self._held))
            for run, attempt, over in await self._read(
                f"SELECT id, attempt, state<>'running' FROM runs WHERE id IN ({ids})"  # noqa: S608 — numbers
            ):
                held = self._held[run]
                if attempt > held.attempt or over:
                    del self._held[run]
                    figures = self.figures
                    kept = figures.again if held.again else figures.takeovers
                    kept = figures.disturbed if self._restarted > held.killed else kept
                    kept = figures.suspects if held.attempt >= SUSPICIOUS_INTERRUPTIONS else kept
                    kept.append(seconds := time.monotonic() - held.killed)
                    if seconds > SOON and kept is figures.takeovers:
                        figures.late_takeovers.append(f"run {run} of host {held.host}: {seconds:.1f} s, {utc()}")

    async def _read(self, sql: str) -> list[tuple[int, ...]]:
        """Read, as soon as the database is there."""
        while True:
            try:
                return self._fleet.rows(sql)
            except StorageError:
                await asyncio.sleep(LOOK)

    def _tolerated(self, platform: str) -> list[str]:
        return [*PROGRESS] if platform in MARKED else []

    # ------------------------------------------------------------ the count

    def _check(self) -> None:
        self.figures.strange += [f"run {run} was not gone on with" for run in self._held]
        super()._check()
        self._check_budgets()
        self.figures.strange += [
            f"{each.folder.name}: a traceback in its log"
            for each in self._fleet.replicas
            if "\nTraceback" in each.log()
        ]

    def _check_budgets(self) -> None:
        """Compare what is booked with what the model was asked for."""
        rows, faults = self._fleet.rows, self.figures.budget
        if held := rows("SELECT * FROM budget_holds"):
            faults.append(f"still held: {held}")
        if left := rows("SELECT id, owner FROM usage WHERE open=1"):
            faults.append(f"still open: {left}")
        [(spent,)] = rows("SELECT sum(input+output) FROM usage")
        for scope, tokens in rows("SELECT scope, tokens FROM budgets WHERE tokens IS NOT NULL"):
            person = scope.removeprefix("person:")
            whose = "" if person == scope else f" WHERE person='{person}'"
            [(true,)] = rows(f"SELECT sum(input+output) FROM usage{whose}")  # noqa: S608 — from the database
            if tokens != true:
                faults.append(f"{scope}: {tokens} booked, {true} used of {spent}")
        booked: Counter[tuple[str, int]] = Counter()
        words = {word for talker in self._talkers for _, word in talker.asked}
        word_of = {
            run: word
            for run, text in rows(WORDS.format(text=self._fleet.payload_text))
            for word in WORD.findall(text)
            if word in words
        }
        rows_of: Counter[str] = Counter()
        for run, used in rows("SELECT run, input+output FROM usage"):
            if word := word_of.get(run):
                booked[word, used] += 1
                rows_of[word] += 1
        asked = Counter(each.id for each in self._fleet.model.requests() if each.id in words)
        self.figures.calls = asked.total()
        faults += [
            f"{word}: the model was asked {count} times, {rows_of[word]} calls are booked"
            for word, count in asked.items()
            if count > rows_of[word]
        ]
        exact = Counter((each.id, each.used) for each in self._fleet.model.requests() if each.id in words)
        self.figures.cut_off = (exact - booked).total()
