"""What one person can weigh on the others: answers without an end, and floods, one after the other on each platform.

Each strain is measured alone: how long another person waits meanwhile, and how much memory the service takes.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import re
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from tests.fakes.model import Answer
from tests.fakes.model_script import directive_of
from tests.fakes.server import Json, until
from tests.redteam.judge import ANSWER_SECONDS, Starvation
from tests.support.all_platforms import AllPlatforms
from tests.support.service_process import ask

# WeChat's robot has one person, WhatsApp's relay bounds what comes in a minute, and Matrix needs a real server.
PLATFORMS = ("telegram", "slack", "discord", "feishu", "dingtalk", "wecom")
OTHER_TOPIC, OWN_TOPIC = 5, 6  # where another person asks, and where a thread is flooded
MOST_GROWTH_MB, LEAST_SECONDS, MOST_SECONDS, GIVE_UP_SECONDS = 60.0, 6.0, 120.0, 60.0
PROBE_PAUSE_SECONDS, SAMPLE_SECONDS = 0.75, 0.05  # 20 messages in ten seconds are the limit of a person
MESSAGES, PRESSES, REACTIONS = 2_000, 3_000, 5_000
_ROW = "".join(f"| {word} {'x' * 12} " for word in ("river", "sea", "otter", "reed")) + "|\n"
_LIST = "".join(f"{'  ' * depth}- otter\n" for depth in range(60))
ANSWERS: Mapping[str, Answer] = {
    "a table of 1 MB": Answer("| a | b | c | d |\n|---|---|---|---|\n" + _ROW * 100, repeat=140),
    "5 MB of words": Answer("The river carries water to the sea, and back. " * 20, repeat=5_600),
    "deep lists": Answer(_LIST, repeat=2_000),
    "a stream of 100 MB": Answer("x" * 16_384, repeat=6_400),
}


@dataclass(slots=True)
class Strained:
    """What a strain has done: seconds that another person waited, without what the machine was too busy, and memory."""

    platform: str
    name: str
    waits: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    growth_mb: float = 0.0
    seconds: float = 0.0
    calls: int = 0  # of the platform

    @property
    def late(self) -> list[str]:
        """Return who waited too long, on a machine with nothing else to do."""
        waited = max(self.own)
        return [f"{self.platform}, {self.name}: another person waited {waited:.1f} s"] * (waited > ANSWER_SECONDS)

    @property
    def problems(self) -> list[str]:
        """Return what must not be, whatever else the machine does."""
        grown, unanswered = self.growth_mb > MOST_GROWTH_MB, max(self.waits) > GIVE_UP_SECONDS
        where = f"{self.platform}, {self.name}"
        return [f"{where}: {self.growth_mb:.0f} MB more memory"] * grown + [f"{where}: no answer"] * unanswered


class Strain:
    """A service on one platform, its people, and what another of them waits."""

    def __init__(self, service: AllPlatforms, name: str) -> None:
        assert service.process
        self.service, self.name, self.rig = service, name, service.rigs[name]
        self._pid = service.process.pid
        self._starved = Starvation()
        self._starved.service = self._pid
        self._numbers = itertools.count(1)

    def _memory_mb(self) -> float:
        status = Path(f"/proc/{self._pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024

    async def probe(self) -> tuple[float, float]:
        """Return how long another person waits for an answer, and how long without a busy machine."""
        text = f"answer number {next(self._numbers)}."
        begun, late = time.monotonic(), self._starved.now()
        self.rig.mutter(ask(text=text), OTHER_TOPIC, mention=True, by=self.rig.other)
        while text not in self._last_words():
            if time.monotonic() - begun > GIVE_UP_SECONDS:
                break
            await asyncio.sleep(0.02)
        waited = time.monotonic() - begun
        return waited, max(0.0, waited - self._starved.since(late))

    def _last_words(self) -> str:
        return "\n".join(self.rig.visible(OTHER_TOPIC)[-3:])

    async def measure(self, what: str, strain: Callable[[], Awaitable[None]]) -> Strained:
        """Probe while the strain works, and until the service is at rest."""
        found = Strained(self.name, what)
        before, calls = self._memory_mb(), self.rig.wire.count("any")
        begun = time.monotonic()

        async def sample() -> None:
            while True:
                found.growth_mb = max(found.growth_mb, self._memory_mb() - before)
                await asyncio.sleep(SAMPLE_SECONDS)

        async def work() -> None:
            await strain()
            await asyncio.sleep(LEAST_SECONDS)
            await self._rest()

        helpers = [asyncio.create_task(each, name="strain") for each in (sample(), self._starved.measure())]
        working = asyncio.create_task(work(), name="work")
        try:
            while not working.done() and time.monotonic() - begun < MOST_SECONDS:
                waited, own = await self.probe()
                found.waits.append(round(waited, 3))
                found.own.append(round(own, 3))
                await asyncio.sleep(PROBE_PAUSE_SECONDS)
        finally:
            for task in (*helpers, working):
                task.cancel()
            await asyncio.wait((*helpers, working))
        if not working.cancelled():
            working.result()
        found.seconds = time.monotonic() - begun
        found.calls = self.rig.wire.count("any") - calls
        return found

    async def _rest(self) -> None:
        """Wait until the service has done what this person wanted: others ask on."""
        sql = f"SELECT 1 FROM conversations WHERE pending>0 AND thread<>'{self.rig.thread(OTHER_TOPIC)}' LIMIT 1"  # noqa: S608 — it is quoted
        while await asyncio.to_thread(self.service.rows, sql):
            await asyncio.sleep(0.2)

    # ------------------------------------------------------------ strains

    async def answer(self, name: str) -> None:
        """Have the model answer without an end."""
        self.rig.mutter(ask(id=name))
        await asyncio.sleep(1)

    async def messages(self) -> None:
        """Write many messages at once."""
        for number in range(MESSAGES):
            self.rig.mutter(f"message {number}")

    async def presses(self) -> None:
        """Press a button again and again: the first press counts."""
        question = {"name": "ask_clarification", "args": {"question": "Which?", "options": ["this one", "that one"]}}
        self.rig.mutter(ask(steps=[{"calls": [question]}], text="chosen"), OWN_TOPIC, mention=True)
        await self.service.shows(self.name, "Which?", OWN_TOPIC)
        await until(lambda: "this one" in self.rig.offers(OWN_TOPIC), what="a button")  # it may come later
        for _ in range(PRESSES):
            self.rig.press("this one", OWN_TOPIC)

    async def reactions(self) -> None:
        """Say again and again whether an answer is good."""
        self.rig.mutter(ask(text="an answer to like"), OWN_TOPIC, mention=True)
        await self.service.shows(self.name, "an answer to like", OWN_TOPIC)
        for number in range(REACTIONS):
            self.rig.rate("👍👎"[number % 2], OWN_TOPIC)


async def strain_platform(folder: Path, name: str, only: str = "") -> list[Strained]:
    """Return what the strains have done on a platform, those whose names contain `only`."""
    async with AllPlatforms.open(folder, name) as service:
        service.model.script, service.model.keep_bodies = endless_answer, False
        strain = Strain(service, name)
        strains: dict[str, Callable[[], Awaitable[None]]] = {each: partial(strain.answer, each) for each in ANSWERS}
        strains |= {f"{MESSAGES} messages": strain.messages}
        strains |= {f"{PRESSES} presses": strain.presses} if "buttons" in strain.rig.can else {}
        strains |= {f"{REACTIONS} reactions": strain.reactions} if "reactions" in strain.rig.can else {}
        for _ in range(4):
            await strain.probe()
        return [await strain.measure(what, each) for what, each in strains.items() if only in what]


def endless_answer(body: Json) -> Answer | None:
    """Return the answer that a request asks for; None for an ordinary one."""
    wanted = str((directive_of(body["messages"])[0] or {}).get("id", "")) if body.get("tools") else ""
    return ANSWERS.get(wanted)


def main() -> int:
    """Run, print what came of it, and return 1 if something did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.redteam.strains", description=__doc__)
    parser.add_argument("--platforms", nargs="+", default=PLATFORMS, choices=PLATFORMS)
    parser.add_argument("--only", default="", help="a part of the names of the strains")
    parser.add_argument("--report", type=Path, help="a file for all that was measured, as JSON")
    given = parser.parse_args()
    found: list[Strained] = []
    for name in given.platforms:
        with tempfile.TemporaryDirectory() as folder:
            found += asyncio.run(strain_platform(Path(folder), name, given.only))
        for each in found:
            if each.platform == name:
                waits = f"longest {max(each.waits):.2f} s, without waiting for a processor {max(each.own):.2f} s"
                print(f"{name}, {each.name}: {waits}, {each.growth_mb:.0f} MB, {each.calls} calls", flush=True)
    if given.report:
        given.report.write_text(json.dumps([asdict(each) for each in found], indent=1))
    problems = [problem for each in found for problem in (*each.late, *each.problems)]
    print("\n".join(problems) or "All held.")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
