"""Have the other processes on the database read their configuration, too, and say what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from uuid import uuid4

from agent.stored_json import Damaged, build_dataclass, raise_damaged
from bot.base.leases import dump_letter, load_letter
from bot.database import replicas
from bot.database.database import Database
from catalogue import _
from channels.shared.background import BackgroundTasks

TOPIC = "reload"
ANSWER_SECONDS = 30.0
MAX_FAULTS, MAX_FAULT_CHARS = 3, 300


class ReloadState(StrEnum):
    """What became of a reload at another process."""

    SAME = "same"
    DIFFERS = "differs"
    REFUSED = "refused"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class ReloadElsewhere:
    """What became of a reload at another process, which the asker names. `digest` is that of its configuration."""

    name: str
    state: ReloadState
    digest: str = ""
    faults: Sequence[str] = ()
    not_applied: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ReloadAnswer:
    """What a process says of its own reload."""

    digest: str
    faults: Sequence[str] = ()
    not_applied: Sequence[str] = ()


class ReloadLetters:
    """Asks the others, and answers them. `reload` reads the configuration of this process again."""

    def __init__(self, store: Database, reload: Callable[[], Awaitable[ReloadAnswer]]) -> None:
        self._store = store
        self._reload = reload
        self._asked: dict[str, dict[str, ReloadElsewhere | None]] = {}  # by question: process → its answer
        self._answered = asyncio.Event()
        self._tasks = BackgroundTasks()
        store.read_letters(TOPIC, self._read)

    async def ask(self, mine: str, seconds: float = ANSWER_SECONDS) -> list[ReloadElsewhere]:
        """Have all others reload, and return what became of it. `mine` is the digest of this one's configuration."""
        if not self._store.is_shared:
            return []
        living = await self._store.run(replicas.living, durable=False)
        waiting: dict[str, ReloadElsewhere | None] = {row.id: None for row in living if row.id != self._store.me}
        if not waiting:
            return []
        question = uuid4().hex
        self._asked[question] = waiting
        try:
            self._send("ask", question=question, digest=mine)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while None in waiting.values():
                        self._answered.clear()
                        await self._answered.wait()
        finally:
            del self._asked[question]
        hosts = {row.id: row.host for row in living}  # as `fawn status` names them
        return [
            replace(answer or ReloadElsewhere("", ReloadState.SILENT), name=hosts[id]) for id, answer in waiting.items()
        ]

    def _read(self, sender: str, text: str) -> None:
        with suppress(Damaged), raise_damaged():
            match load_letter(text):
                case {"kind": "ask", "question": str(question), "digest": str(theirs)}:
                    self._tasks.start(self._answer(sender, question, theirs), name="reload for another process")
                case {"kind": "answer", "question": str(question), "answer": dict(answer)}:
                    waiting = self._asked.get(question, {})
                    if sender in waiting:
                        state = ReloadState(answer.pop("state"))
                        waiting[sender] = build_dataclass(ReloadElsewhere, answer, state=state)
                        self._answered.set()

    async def _answer(self, sender: str, question: str, theirs: str) -> None:
        found = await self._reload()
        state = ReloadState.SAME if found.digest == theirs else ReloadState.DIFFERS
        faults = [fault[:MAX_FAULT_CHARS] for fault in found.faults[:MAX_FAULTS]]
        answer = ReloadElsewhere("", ReloadState.REFUSED if faults else state, found.digest, faults, found.not_applied)
        self._send("answer", sender, question=question, answer=answer)

    def _send(self, kind: str, to: str = "", **content: object) -> None:
        self._store.send(TOPIC, dump_letter(kind, **content), to)


def describe_elsewhere(other: ReloadElsewhere, mine: str) -> str:
    """Return what became of a reload at another process. `mine` is the digest of this one's configuration."""
    match other.state:
        case ReloadState.SAME:
            return _("{name}: reloaded, with the same configuration.", name=other.name)
        case ReloadState.DIFFERS:
            there, here = other.digest[:12], mine[:12]
            return _(
                "{name}: reloaded, but its configuration differs ({there}; here {here}).",
                name=other.name,
                there=there,
                here=here,
            )
        case ReloadState.REFUSED:
            return _(
                "{name}: it refused its configuration, and keeps the one before: {faults}",
                name=other.name,
                faults=" ".join(other.faults),
            )
        case ReloadState.SILENT:
            return _("{name}: no answer within {n:g} seconds.", name=other.name, n=ANSWER_SECONDS)
