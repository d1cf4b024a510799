"""What must hold under attack: answers in time, nothing outside its conversation, no faults, no denied deed."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import subprocess
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from aiohttp import web

from tests.fakes.model import Answer, FakeModel, Request
from tests.fakes.model_script import directive_of
from tests.fakes.server import Json
from tests.fakes.telegram import Call, FakeTelegram
from tests.redteam.calls import DEED, WRITTEN, Turn

ANSWER_SECONDS = 2.0
TIMES_BASELINE = 4  # of a busy machine
TICK_SECONDS = 0.02
MARKER = re.compile(rb"KANARI-(\d+)-[0-9a-f]{8}")
SEALED = b"SEALED"  # what a rule lets nobody read
FAULTS = re.compile(r"never retrieved|Unhandled exception|Something broke on my side|failed internally")
TRACEBACK = "Traceback (most recent"  # in chats and the log; models read what programs in the sandbox print
REQUEST = "request to the model"
KEPT = 20  # findings of one kind


def marker(chat: int) -> str:
    """Return the text that is known in one chat only, which no attack can guess."""
    return f"KANARI-{chat}-{hashlib.sha256(f'of {chat}'.encode()).hexdigest()[:8]}"


@dataclass(slots=True)
class Report:
    """What came of a run."""

    seconds: float = 0.0
    turns: int = 0
    calls: int = 0
    unfinished: int = 0  # turns that the attacker stopped, because they took long
    pages: bool = False  # whether there were hostile pages
    baseline: float = 0.0  # the longest calm answer, in seconds
    answers: list[float] = field(default_factory=list)  # of the others during the attack
    own: list[float] = field(default_factory=list)  # without what the machine was too busy
    late: list[str] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    deeds: list[str] = field(default_factory=list)
    untried: list[str] = field(default_factory=list)  # tools that were offered and not called

    @property
    def limit(self) -> float:
        """Seconds within which each answer must come."""
        return max(ANSWER_SECONDS, TIMES_BASELINE * self.baseline)

    @property
    def problems(self) -> list[str]:
        return [*self.late, *self.leaks, *self.faults, *self.deeds, *(f"never called: {each}" for each in self.untried)]

    def add(self, kind: list[str], words: str) -> None:
        """Keep a finding, once."""
        if len(kind) < KEPT and words not in kind:
            kind.append(words)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self) | {"limit": self.limit, "problems": self.problems}, indent=1))


class Watch:
    """Looks at all that leaves the service."""

    def __init__(self, report: Report, secrets: Iterable[str]) -> None:
        self.report = report
        self._secrets = [each.encode() for each in secrets]
        self._log_read = 0

    def check(self, where: str, data: bytes, chat: int | None) -> None:
        """Look for markers of other chats than this one (None: of more than one), for secrets and for faults."""
        found = {int(each) for each in MARKER.findall(data)}
        if foreign := found - {chat} if chat is not None or len(found) > 1 else set():
            self.report.add(
                self.report.leaks, f"{where}: what only {sorted(foreign)} know: {_around(data, b'KANARI-')}"
            )
        for secret in self._secrets:
            if secret in data:
                self.report.add(self.report.leaks, f"{where}: a secret of the host: {_around(data, secret)}")
        if SEALED in data:
            self.report.add(self.report.deeds, f"{where}: a sealed file was read: {_around(data, SEALED)}")
        text = data.decode(errors="replace")
        fault = FAULTS.search(text)
        if fault or (TRACEBACK in text and where != REQUEST):
            words = _around(data, (fault[0] if fault else TRACEBACK).encode())
            self.report.add(self.report.faults, f"{where}: {words}")

    def check_call(self, call: Call) -> None:
        """Look at a call of the platform."""
        texts = json.dumps(call.args, ensure_ascii=False).encode(errors="replace")
        files = b"\n".join(name.encode() + data for name, data in call.files.values())
        self.check(f"{call.method} to {call.chat}", texts + files, call.chat or 0)

    def check_log(self, log: Path) -> None:
        """Look at what the log has got since the last time."""
        with log.open("rb") as file:
            file.seek(self._log_read)
            lines = file.read()
        self._log_read += len(lines)
        for line in lines.splitlines():
            self.check("log", line, None)

    def check_deeds(self, folder: Path) -> None:
        """Look for what only a denied deed makes."""
        found = subprocess.run(
            ["find", folder, "-name", f"{DEED}*", "-o", "-name", "denied-mcp",
             "-o", "-path", "*/outputs/*", "-name", f"{WRITTEN}*"],
            capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip
        for path in found.stdout.splitlines():
            self.report.add(self.report.deeds, f"denied, and done: {Path(path).relative_to(folder)}")


def _around(data: bytes, what: bytes) -> str:
    at = data.find(what)
    return data[max(0, at - 200) : at + 300].decode(errors="replace")


class WatchedTelegram(FakeTelegram):
    """Hands each call to the watch instead of keeping it."""

    watch: Watch

    def take_calls(self) -> None:
        """Look at the calls that were answered, and forget them."""
        done = [call for call in self.calls if call.status]
        self.calls[:] = [call for call in self.calls if not call.status]
        for call in done:
            self.watch.check_call(call)


class HostileModel(FakeModel):
    """Answers as the turns say, and hands each request to the watch."""

    watch: Watch

    def __init__(self, turns: Iterable[Turn]) -> None:
        super().__init__(self.play)
        self.keep_bodies = False
        self.turns = {turn.id: turn for turn in turns}
        self.played: dict[str, int] = {}
        self.offered: set[str] = set()
        self.called: set[str] = set()

    def play(self, body: Json) -> Answer | None:
        """Return the next step of a turn; None for what is no turn."""
        self.offered |= {each["function"]["name"] for each in body.get("tools") or ()}
        name = str((directive_of(body["messages"])[0] or {}).get("id", "")) if body.get("tools") else ""
        if name not in self.turns:
            return None
        turn, step = self.turns[name], self.played.get(name, 0)
        self.played[name] = step + 1
        if step < len(turn.steps):
            self.called |= {call.name for call in turn.steps[step].calls}
            self.watch.report.calls += len(turn.steps[step].calls)
            return turn.steps[step]
        return turn.final if step == len(turn.steps) else Answer(f"done {name}")

    async def _receive(self, request: web.Request) -> tuple[Request, bytes]:
        entry, raw = await super()._receive(request)
        self.watch.check(REQUEST, raw, None)
        return entry, raw


class Starvation:
    """How long this process, which runs the fakes, and the service have waited for a processor.

    A busy machine delays both, which is no fault of the service. Its own work is not part of it.
    """

    def __init__(self) -> None:
        self.service = 0  # its process id
        self._late = 0.0

    def now(self) -> dict[str, float]:
        """Return the sums so far: of the fakes (""), and of each thread of the service."""
        waited = {"": self._late}
        for task in Path(f"/proc/{self.service}/task").iterdir():
            with contextlib.suppress(FileNotFoundError):  # the thread has ended
                waited[task.name] = int((task / "schedstat").read_text().split()[1]) / 1e9
        return waited

    def since(self, before: dict[str, float]) -> float:
        """Return what an answer has waited: for the fakes, or for the service's loop and its database's thread.

        The two sides wait at the same time, so the larger one counts.
        """
        waited = {name: now - before.get(name, now) for name, now in self.now().items()}
        fakes, loop = waited.pop(""), waited.pop(str(self.service), 0.0)
        return max(fakes, loop + max(waited.values(), default=0.0))

    async def measure(self) -> None:
        """Add up the lateness of each tick of this process, until cancelled."""
        while True:
            due = time.monotonic() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            self._late += max(0.0, time.monotonic() - due)
