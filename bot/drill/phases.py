"""The faults of a drill, one after another, and the count of what became of each message."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bot.drill.report import FaultRow, row_of
from bot.drill.servers import BOT, HELD, DrillModel, DrillTelegram, answer_to
from bot.drill.service import DrillService, NotStarted, people
from catalogue import _
from channels.shared.texts import REPEAT_MARK
from channels.telegram.events import NAME
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.folders import remove_tree

LIFE_SECONDS = 1.2  # of a service between a message and its death, at most
UNBORN = 0.25  # so many are killed before they are ready
GATEWAY_MESSAGES, GATEWAY_FAULTS = 6, 6
DEAF_SECONDS = 2.0
FULL_SECONDS, FILL_SECONDS = 5.0, 0.05
REST_SECONDS = 3.0  # in which an answer could come a second time
BALLAST = 1 << 20
FULL_MESSAGES, LONG = 10, "x" * 4000


@dataclass(slots=True)
class Said:
    """A message of a person."""

    person: int
    word: str


@dataclass(slots=True)
class Phase:
    """The messages of a fault, and how long answers were away."""

    fault: str
    said: list[Said] = field(default_factory=list)
    away: list[float] = field(default_factory=list)
    times: int = 0
    rpo: float | None = 0.0
    unrecorded: set[str] = field(default_factory=set)  # answered, and in no record any more: they count as lost


class Drill:
    """One drill on a service with its data in `data`. A message without an answer for `answer_seconds` is given up."""

    def __init__(
        self,
        service: DrillService,
        servers: tuple[DrillTelegram, DrillModel],
        data: Path,
        answer_seconds: float,
        say_progress: Callable[[str], object],
    ) -> None:
        self._service, (self._telegram, self._model) = service, servers
        self._data = data
        self._answer_seconds = answer_seconds
        self._say_progress = say_progress
        self._people: Iterator[int] = iter(people())
        self._dice = random.Random()  # noqa: S311 — moments, no secrets
        self._phases: list[Phase] = []

    async def run(self, kills: int, *, disk: bool, backup_seconds: float | None) -> list[FaultRow]:
        """Run all faults on a service that has started, then count. `disk`: it is a small one. Raises NotStarted."""
        await self._suffer_kills(kills)
        await self._suffer_gateway()
        await self._suffer_deafness()
        if disk:
            await self._suffer_full_disk()
        await self._suffer_loss(backup_seconds)
        await self._service.kill()
        await self._service.start()  # what was not done is done now, or it never will be
        await asyncio.sleep(REST_SECONDS)
        await self._service.kill()
        return [self._count(phase) for phase in self._phases]

    # ------------------------------------------------------------ the faults

    async def _suffer_kills(self, kills: int) -> None:
        with self._phase("kills") as phase:
            while phase.times < kills:
                said = self._say(phase)
                await asyncio.sleep(self._dice.uniform(0.0, LIFE_SECONDS))
                began = time.monotonic()
                await self._kill(phase)
                while phase.times < kills and self._dice.random() < UNBORN:
                    await self._service.spawn()
                    await asyncio.sleep(self._dice.uniform(0.05, LIFE_SECONDS))
                    await self._kill(phase)
                await self._service.start()
                await self._answered(said, phase, began)
                self._say_progress(_("{n} of {all} kills", n=phase.times, all=kills))

    async def _kill(self, phase: Phase) -> None:
        await self._service.kill()
        phase.times += 1

    async def _suffer_gateway(self) -> None:
        with self._phase("gateway") as phase:
            self._telegram.suffered, self._telegram.gateway_faults = 0, GATEWAY_FAULTS
            began = time.monotonic()
            for said in [self._say(phase) for _number in range(GATEWAY_MESSAGES)]:
                await self._answered(said, phase, began)
            phase.times, self._telegram.gateway_faults = self._telegram.suffered, 0

    async def _suffer_deafness(self) -> None:
        with self._phase("deaf") as phase:
            self._telegram.unanswered, self._telegram.deaf = 0, True
            said, began = self._say(phase), time.monotonic()
            await asyncio.sleep(DEAF_SECONDS)
            self._telegram.deaf = False  # the connection of before stays dead
            await self._answered(said, phase, began)
            phase.times = self._telegram.unanswered

    async def _suffer_full_disk(self) -> None:
        """Fill the disk for a while, again and again. Answers may come meanwhile: the database has room set aside."""
        with self._phase("disk") as phase:
            ballast, began, phase.times = self._data.parent / "ballast", time.monotonic(), 1
            _fill(ballast)
            said = [self._say(phase, padding=LONG) for _number in range(FULL_MESSAGES)]
            answers = asyncio.gather(*(self._answered(each, phase, began) for each in said))
            while time.monotonic() < began + FULL_SECONDS:
                await asyncio.sleep(FILL_SECONDS)
                _fill(ballast)
            ballast.unlink()
            await answers

    async def _suffer_loss(self, backup_seconds: float | None) -> None:
        """Lose the whole folder, after a backup that an answer under way is part of."""
        with self._phase("restore") as phase:
            phase.times, phase.rpo = 1, backup_seconds
            done, held = self._say(phase), self._say(phase, HELD)
            await self._answered(done)
            archive = self._data.parent.parent / "drill.tar.gz"
            await self._service.command("backup", str(archive))
            began = time.monotonic()
            await self._service.kill()
            self._model.released.set()
            await run_file_work(remove_tree, self._data)
            await self._service.command("restore", str(archive))
            await self._service.start()
            await self._answered(held, phase, began)
            if not await self._is_recorded(done):
                phase.unrecorded.add(done.word)

    async def _is_recorded(self, said: Said) -> bool:
        """Return whether the answer to a message is in the transcript of its thread."""
        try:
            record = await self._service.command("export", f"{NAME}/{BOT['id']}/{said.person}/")
        except NotStarted:  # there is no such thread any more
            return False
        return answer_to(said.word) in record

    # ------------------------------------------------------------ the count

    @contextmanager
    def _phase(self, fault: str) -> Iterator[Phase]:
        phase = Phase(fault)
        yield phase
        self._phases.append(phase)

    def _say(self, phase: Phase, more: str = "", padding: str = "") -> Said:
        person = next(self._people)
        said = Said(person, f"drill-{person}{more}")
        phase.said.append(said)
        self._telegram.write(person, f"{said.word} {padding}")
        return said

    async def _answered(self, said: Said, phase: Phase | None = None, began: float = 0.0) -> None:
        """Wait until a message is answered; one that is not counts as lost at the end. Note how long answers were away.

        `phase` None: nothing is noted.
        """
        try:
            async with asyncio.timeout(self._answer_seconds):
                await self._telegram.until(lambda: sum(self._answers(said)) > 0)
        except TimeoutError:
            return
        finally:
            if phase:
                phase.away.append(time.monotonic() - began)

    def _answers(self, said: Said) -> tuple[int, int]:
        """Return how many plain answers to a message are visible, and how many that say that they are repeats."""
        whole = [text for text in self._telegram.visible(said.person) if answer_to(said.word) in text]
        marked = [text for text in whole if text.startswith(_(REPEAT_MARK)[:1])]
        return len(whole) - len(marked), len(marked)

    def _count(self, phase: Phase) -> FaultRow:
        answers = [(0, 0) if said.word in phase.unrecorded else self._answers(said) for said in phase.said]
        return row_of(phase.fault, phase.times, answers, phase.away, phase.rpo)


def _fill(file: Path) -> None:
    """Fill the file system that a file is on."""
    try:
        with file.open("ab", buffering=0) as out:
            while out.write(bytes(BALLAST)):
                pass
    except OSError:
        return
