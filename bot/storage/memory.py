"""Memories, their full-text index, and the queue of runs that were not read for memories yet."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from agent.memory.visibility import (
    HABITS,
    Memory,
    MemoryKind,
    Place,
    index_keys,
    may_see,
    visible_audiences,
)
from agent.memory.words import index_text
from agent.messages import Author, Thread
from bot.database.database import Execute
from bot.database.dialect import ROW_ID
from bot.database.rows import insert_row, read_rows

MAX_HABITS = 40
MAX_AUDIENCES = 5
_KINDS = {kind.value: kind for kind in MemoryKind}
_FIELDS = frozenset(field.name for field in fields(Memory))
_AUDIENCES = ", ".join(f":audience{number}" for number in range(MAX_AUDIENCES))
_HABITS = ", ".join(sorted(f"'{kind}'" for kind in HABITS))
VISIBLE = f"superseded_by IS NULL AND (audience IN ({_AUDIENCES}) OR (account=:account AND owner=:owner))"


@dataclass(frozen=True, slots=True)
class QueuedRun:
    """A run whose messages of one person were not read for memories yet."""

    run: int
    account: str
    owner: str
    conversation: str
    at: float


def add_memory(execute: Execute, memory: Memory, before: str = "", after: str = "") -> int:
    """Store a memory and return its id. `before` and `after` are what its person said around it: found, never shown."""
    values = {
        "account": memory.account,
        "owner": memory.owner,
        "audience": memory.audience,
        "kind": memory.kind,
        "subject": memory.subject,
        "text": memory.text,
        "confidence": memory.confidence,
        "said": memory.said,
        "used": memory.used,
        "uses": memory.uses,
        "name": memory.name,
        "thread": memory.thread,
        "message": memory.message,
        "links": memory.links,
    }
    number = int(insert_row(execute, "memory", "id", values)[0]["id"])
    execute(
        "INSERT INTO memory_index(rowid, text, before, after, audience)"
        " VALUES (:id, :text, :before, :after, :audience)",
        {
            "id": number,
            "text": index_text(memory.line),
            "before": index_text(before),
            "after": index_text(after),
            "audience": " ".join(map(index_token, index_keys(memory))),
        },
    )
    return number


def move_memories(execute: Execute, old: Thread, new: Thread) -> None:
    """Let the memories of a chat belong to its new address."""
    before, after = Place(old, private=False).chat, Place(new, private=False).chat
    rows = execute(
        "UPDATE memory SET audience=:after || substr(audience, length(:before)+1)"
        " WHERE audience=:before OR (audience>=:before || '/' AND audience<:before || '0') RETURNING *",
        {"before": before, "after": after},
    )
    for row in rows:
        memory = Memory(**{name: row[name] for name in _FIELDS & {*row.keys()}} | {"kind": _KINDS[row["kind"]]})
        tokens = " ".join(map(index_token, index_keys(memory)))
        execute("UPDATE memory_index SET audience=:tokens WHERE rowid=:id", {"tokens": tokens, "id": memory.id})


def habits_of(execute: Execute, place: Place, person: Author) -> list[Memory]:
    """Return the memories that apply to every request of this person here, the newest corrections first."""
    sql = (
        f"SELECT * FROM memory WHERE {VISIBLE} AND kind IN ({_HABITS})"
        f" ORDER BY kind='{MemoryKind.CORRECTION}' DESC, said DESC LIMIT {MAX_HABITS}"
    )
    return visible_rows(execute, sql, place, person, visibility_values(place, person))


def list_memories(execute: Execute, place: Place, person: Author, limit: int) -> list[Memory]:
    """Return what this person may see here, the newest first."""
    sql = f"SELECT * FROM memory WHERE {VISIBLE} ORDER BY said DESC, id DESC LIMIT :limit"
    return visible_rows(execute, sql, place, person, {**visibility_values(place, person), "limit": limit})


def find_memories(execute: Execute, ids: Iterable[int], place: Place, person: Author) -> list[Memory]:
    """Return those of these memories that are in force and that this person may see here."""
    sql = "SELECT * FROM memory WHERE id=:id AND superseded_by IS NULL"
    return [each for number in ids for each in visible_rows(execute, sql, place, person, {"id": number})]


def supersede_memory(execute: Execute, old: int, new: int) -> None:
    """Record that a newer memory replaces an old one, which is never found again."""
    execute("UPDATE memory SET superseded_by=:new WHERE id=:old", {"old": old, "new": new})
    execute("DELETE FROM memory_index WHERE rowid=:old", {"old": old})
    execute("DELETE FROM memory_vectors WHERE memory=:old", {"old": old})


def store_links(execute: Execute, memory: int, links: str) -> None:
    """Store how a memory concerns others."""
    execute("UPDATE memory SET links=:links WHERE id=:id", {"links": links, "id": memory})


def confirm_memory(execute: Execute, memory: Memory) -> None:
    """Record that a person said again what is known, with the words, time and place of now: it is more certain."""
    values = {name: getattr(memory, name) for name in ("id", "text", "said", "thread", "message", "confidence")}
    execute(
        "UPDATE memory SET text=:text, thread=:thread, message=:message, said=:said,"
        " confidence=CASE WHEN confidence>:confidence THEN confidence ELSE :confidence END,"
        " used=CASE WHEN used>:said THEN used ELSE :said END WHERE id=:id",
        values,
    )


def record_uses(execute: Execute, memories: Iterable[int], now: float) -> None:
    """Record that a turn used these memories."""
    for memory in memories:
        execute("UPDATE memory SET uses=uses+1, used=:now WHERE id=:id", {"id": memory, "now": now})


def forget_memory(execute: Execute, memory: int) -> None:
    """Delete a memory and what it superseded."""
    for row in execute("SELECT id FROM memory WHERE superseded_by=:id", {"id": memory}):
        forget_memory(execute, row["id"])
    execute("DELETE FROM memory WHERE id=:id", {"id": memory})
    execute("DELETE FROM memory_index WHERE rowid=:id", {"id": memory})
    execute("DELETE FROM memory_vectors WHERE memory=:id", {"id": memory})


def forget_person(execute: Execute, account: str, owner: str) -> int:
    """Delete everything that a person said, and what waits to be read; return how many memories were in force."""
    values = {"account": account, "owner": owner}
    execute("DELETE FROM memory_queue WHERE account=:account AND owner=:owner", values)
    rows = execute("SELECT id, superseded_by FROM memory WHERE account=:account AND owner=:owner", values)
    for row in rows:
        forget_memory(execute, row["id"])
    return sum(row["superseded_by"] is None for row in rows)


def forget_some(execute: Execute, account: str, owner: str, *, limit: int) -> int:
    """Delete some of what a person said, and of what waits to be read; return how many rows."""
    values = {"account": account, "owner": owner, "limit": limit}
    sql = f"SELECT {ROW_ID} FROM memory_queue WHERE account=:account AND owner=:owner LIMIT :limit"
    queued = execute(f"DELETE FROM memory_queue WHERE {ROW_ID} IN ({sql}) RETURNING 1", values)
    rows = execute("SELECT id FROM memory WHERE account=:account AND owner=:owner LIMIT :limit", values)
    for row in rows:
        forget_memory(execute, row["id"])
    return len(queued) + len(rows)


def forget_unused(execute: Execute, before: float, weak_before: float, limit: int) -> int:
    """Delete some memories that no turn has used since `before`, uncertain ones since `weak_before`; return how many.

    Corrections stay as long as they are in force.
    """
    rows = execute(
        f"SELECT id FROM memory WHERE (used<:before OR (used<:weak AND confidence<0.5))"
        f" AND (kind<>'{MemoryKind.CORRECTION}' OR superseded_by IS NOT NULL) LIMIT :limit",
        {"before": before, "weak": weak_before, "limit": limit},
    )
    for row in rows:
        forget_memory(execute, row["id"])
    return len(rows)


def queue_run(execute: Execute, queued: QueuedRun) -> float:
    """Have a run read for memories of a person; return since when the oldest run of this person waits."""
    values = {
        "run": queued.run,
        "account": queued.account,
        "owner": queued.owner,
        "conversation": queued.conversation,
        "at": queued.at,
    }
    insert_row(execute, "memory_queue", "account, owner, run", values)
    return queued_runs(execute, queued.account, queued.owner, 1)[0].at


def queued_runs(execute: Execute, account: str, owner: str, limit: int) -> list[QueuedRun]:
    """Return the oldest runs that wait to be read for memories of a person."""
    sql = "SELECT * FROM memory_queue WHERE account=:account AND owner=:owner ORDER BY run LIMIT :limit"
    return read_rows(execute, QueuedRun, sql, account=account, owner=owner, limit=limit)


def remove_queued(execute: Execute, queued: QueuedRun) -> bool:
    """Remove a run from the queue; return whether it was there."""
    values = {"run": queued.run, "account": queued.account, "owner": queued.owner}
    sql = "DELETE FROM memory_queue WHERE run=:run AND account=:account AND owner=:owner RETURNING run"
    return bool(execute(sql, values))


def visible_rows(execute: Execute, sql: str, place: Place, person: Author, values: dict[str, Any]) -> list[Memory]:
    """Run a statement and return those of its rows that this person may see here."""
    rows = execute(sql, values)
    names = [name for name in rows[0].keys() if name in _FIELDS] if rows else []  # noqa: SIM118  # a row of sqlite3 iterates over its values
    memories = (Memory(**{name: row[name] for name in names} | {"kind": _KINDS[row["kind"]]}) for row in rows)
    return [memory for memory in memories if may_see(memory, place, person)]


def visibility_values(place: Place, person: Author) -> dict[str, Any]:
    """Return the values of the parameters of VISIBLE."""
    audiences: Sequence[str] = sorted(visible_audiences(place, person))
    named = {f"audience{number}": "" for number in range(MAX_AUDIENCES)}
    named |= {f"audience{number}": audience for number, audience in enumerate(audiences)}
    return {**named, "account": place.account, "owner": person.id if place.private else ""}


def index_token(key: str) -> str:
    """Return the word that stands for an audience in the index."""
    return f"a{hashlib.sha256(key.encode()).hexdigest()[:20]}"
