"""Measure how much of each model request repeats the one before, from its beginning on: what a provider has cached.

A conversation with memory, skills and tools: each turn runs commands and answers. The tools and the messages count as
they are sent, by characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import orjson

from agent.memory.visibility import Memory, MemoryKind, MemoryScope, Place, audience_of
from agent.messages import Thread
from bench.harness import Row, World, median, new_chats, show
from bench.latency import FAST
from bot.database.database import Database, Execute
from bot.storage import memory as stored
from tests.fakes.model import words

STEPS, LINES, ANSWER_WORDS = 3, 300, 120  # of one turn: commands, what each prints, the answer
PREFERENCES = ("answers in tables", "short sentences in reports", "prices in euros", "no work on Fridays")
TURNS, FULL_TURNS = 8, 30
GOAL = 5.0  # % of all input that is not repeated


@dataclass(frozen=True, slots=True)
class Pair:
    """Two requests in a row: whether the second one begins a turn, its length, and how much of the first it repeats."""

    begins: bool
    length: int
    same: int
    before: int

    @property
    def anew(self) -> float:
        """The part of the second request, in percent, that is not the beginning of the first."""
        return 100 * (1 - self.same / self.length)

    @property
    def lost(self) -> float:
        """The part of the first request, in percent, that the second one does not repeat."""
        return 100 * (1 - self.same / self.before)


def directive(number: int) -> str:
    """Return what the person says in a turn: what they want, and the script of the model."""
    commands = [f"seq {number * 1000 + step * 100} {number * 1000 + step * 100 + LINES}" for step in range(STEPS)]
    steps = [{"calls": [{"name": "bash", "args": {"command": command}}]} for command in commands]
    script = {"id": f"prefix{number}", "tokens": ANSWER_WORDS, "word": f"p{number}_", "steps": steps}
    return f"What about report number {number} of the vendor? ::{orjson.dumps(script).decode()}"


def remember(execute: Execute, chat: int) -> None:
    """Store what goes with every request of the person of this chat."""
    [row] = execute("SELECT thread FROM conversations LIMIT 1", {})
    place, kind = Place(Thread.parse(row["thread"]), private=True), MemoryKind.PREFERENCE
    audience = audience_of(MemoryScope.PERSON, kind, place, str(chat))
    for number, text in enumerate(PREFERENCES):
        fact = Memory(0, place.account, str(chat), audience, kind, "", text, 0.9, 0.0, 0.0, 0, "", "", f"m{number}")
        stored.add_memory(execute, fact, "", "")


def compare(requests: Sequence[Sequence[dict[str, Any]]]) -> list[Pair]:
    """Return each request of the turns beside the one before it."""
    sent = [(at == 0, _text_of(request)) for turn in requests for at, request in enumerate(turn)]
    return [Pair(begins, len(text), _same(last, text), len(last)) for (_, last), (begins, text) in pairwise(sent)]


def _text_of(request: dict[str, Any]) -> bytes:
    """Return the request in the order in which providers read it; the end of the list is no content."""
    return (orjson.dumps(request["tools"]) + orjson.dumps(request["messages"]))[:-1]


def _same(one: bytes, other: bytes) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


async def converse(world: World, turns: int, *, memory: bool) -> list[Pair]:
    """Hold a conversation; with `memory`, notes go with every request. Raises RuntimeError if one has none."""
    [chat] = new_chats(1)
    requests = []
    async with world.service("fawn", rates=FAST, memory=memory) as service:
        for number in range(turns):
            await world.model("forget", keep_bodies=True)
            await world.telegram("bulk", texts={str(chat): directive(number)})
            last = words(ANSWER_WORDS, f"p{number}_").split()[-1]
            await world.telegram("wait", chat=chat, text=last, seconds=120)
            requests.append(await world.model("requests", id=f"prefix{number}"))
            if memory and number == 0:
                async with Database(service.data / "fawn.db") as store:
                    await store.run(partial(remember, chat=chat))
    noted = requests[1:]  # the first turn has no memory yet
    if memory and not all(PREFERENCES[0] in str(request["messages"]) for turn in noted for request in turn):
        raise RuntimeError("a request has no notes")
    return compare(noted)


def rows_of(pairs: Sequence[Pair], name: str) -> list[Row]:
    """Return the figures of a conversation."""
    inside = [pair for pair in pairs if not pair.begins]
    between = [pair for pair in pairs if pair.begins]
    anew = 100 * (1 - sum(pair.same for pair in pairs) / sum(pair.length for pair in pairs))
    return [
        Row(f"{name}: input that no cache can have", anew, "%", goal=GOAL, note=f"{len(pairs)} requests"),
        Row("… of a request after a tool, median", median([pair.anew for pair in inside]), "%"),
        Row("… of the first request of a turn, median", median([pair.anew for pair in between]), "%"),
        Row("of a request, what the next one in the turn drops", max(pair.lost for pair in inside), "%", note="most"),
        Row("… what the first one of the next turn drops", max(pair.lost for pair in between), "%", note="most: notes"),
    ]


async def run(world: World, full: bool = False) -> list[Row]:
    """Run the part and compare it with the goal."""
    turns = FULL_TURNS if full else TURNS
    rows = rows_of(await converse(world, turns, memory=False), "memory off")
    rows += rows_of(await converse(world, turns, memory=True), "memory on")
    show("Requests that repeat each other", rows)
    return rows
