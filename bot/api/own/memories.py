"""Find what the agent remembers of a caller, over HTTP and on their platform."""

from __future__ import annotations

from agent.memory.visibility import Memory, Place
from bot.api.shared.caller import Caller
from bot.database.database import Execute
from bot.database.web_people import WEB, true_person
from bot.storage import memory

MAX_MEMORIES = 10_000


def accounts_of(caller: Caller) -> list[tuple[str, str]]:
    """Return channel and id of the caller over HTTP and on their platform."""
    return [(WEB, caller.author.id), true_person(WEB, caller.author.id)]


def find_memory(execute: Execute, caller: Caller, number: int) -> Memory | None:
    """Return one of them."""
    return next((row for row in memories_of(execute, caller) if row.id == number), None)


def memories_of(execute: Execute, caller: Caller) -> list[Memory]:
    """Return what the agent remembers of the caller and may show in a direct chat, the newest first."""
    found: dict[int, Memory] = {}
    for channel, _id in accounts_of(caller):
        place, author = caller.at(execute, channel)
        rows = memory.list_memories(execute, Place(place, private=True), author, MAX_MEMORIES)
        found |= {row.id: row for row in rows if row.owner == author.id}
    return sorted(found.values(), key=lambda row: (row.said, row.id), reverse=True)
