"""The embeddings of memories, and the search for those nearest to a request."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.memory.embeddings import EmbeddedRequest, Vector, sign_bits, similarity
from agent.memory.ranking import MIN_SHARE
from agent.memory.visibility import Memory, Place
from agent.messages import Author
from bot.database.database import Execute
from bot.database.rows import insert_row, read_rows
from bot.storage.memory import VISIBLE, find_memories, visibility_values

MAX_COMPARED = 10_000
MAX_EXACT, MAX_NEAREST = 60, 20


@dataclass(frozen=True, slots=True)
class UnembeddedMemory:
    """A memory without a vector; its `owner` said it in `thread`."""

    id: int
    account: str
    owner: str
    thread: str
    subject: str
    text: str

    @property
    def line(self) -> str:
        """What is embedded."""
        return f"{self.subject}: {self.text}".removeprefix(": ")


def memories_without_vector(execute: Execute, model: str, before: int, limit: int) -> list[UnembeddedMemory]:
    """Return memories in force that this model has not embedded, with ids below `before`, the newest first."""
    sql = (
        "SELECT id, account, owner, thread, subject, text FROM memory WHERE id<:before AND superseded_by IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM memory_vectors v WHERE v.memory=memory.id AND v.model=:model)"
        " ORDER BY id DESC LIMIT :limit"
    )
    return read_rows(execute, UnembeddedMemory, sql, model=model, before=before, limit=limit)


def store_vectors(execute: Execute, model: str, vectors: Sequence[tuple[int, Vector]]) -> None:
    """Store the vectors of those memories that are still in force."""
    for memory, vector in vectors:
        if execute("SELECT 1 FROM memory WHERE id=:id AND superseded_by IS NULL", {"id": memory}):
            values = {"memory": memory, "model": model, "bits": sign_bits(vector), "vector": vector.tobytes()}
            insert_row(execute, "memory_vectors", "memory", values, update=[*values])


def nearest_memories(
    execute: Execute, place: Place, person: Author, model: str, request: EmbeddedRequest, min_similarity: float
) -> list[Memory]:
    """Return the memories nearest to a request, the nearest first, as far as this person may see them here.

    Those of at least `min_similarity` have enough of its meaning to go with it.

    The signs of the vectors choose those that are compared exactly.
    """
    sql = (
        "SELECT v.memory, v.bits FROM memory_vectors v JOIN memory ON memory.id=v.memory"
        f" WHERE v.model=:model AND {VISIBLE} ORDER BY v.memory DESC LIMIT {MAX_COMPARED}"
    )
    rows = execute(sql, {**visibility_values(place, person), "model": model})
    wanted = int.from_bytes(sign_bits(request.vector))
    near = sorted((wanted ^ int.from_bytes(row["bits"])).bit_count() << 40 | row["memory"] for row in rows)
    scores = {}
    for each in near[:MAX_EXACT]:
        number = each & ((1 << 40) - 1)
        [row] = execute("SELECT vector FROM memory_vectors WHERE memory=:id", {"id": number})
        scores[number] = similarity(request.vector, array("f", row["vector"]))
    best = sorted(scores, key=lambda number: -scores[number])
    near = [
        (memory, request.meaning_of(scores[memory.id]))
        for memory in find_memories(execute, best[:MAX_NEAREST], place, person)
    ]
    return [
        replace(memory, score=scores[memory.id], share=MIN_SHARE if meaning >= min_similarity else 0.0)
        for memory, meaning in near
        if meaning > 0
    ]
