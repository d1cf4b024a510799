"""Search memories by their words, and by the embeddings nearest to a request."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.memory.embeddings import EmbeddedRequest, Vector, sign_bits, similarity
from agent.memory.ranking import MIN_SHARE
from agent.memory.visibility import Memory, Place, search_keys
from agent.memory.words import MAX_QUERY_WORDS, content_words, stem
from agent.messages import Author
from bot.database.database import Execute
from bot.database.dialect import FULL_TEXT_MATCH, FULL_TEXT_SCORE
from bot.database.rows import insert_row, read_rows
from bot.storage.memory import VISIBLE, find_memories, index_token, visibility_values, visible_rows

MAX_MATCHES = 60
MAX_COUNTED = 2_000  # memories with a word; it is as good as in all of them
MAX_SCORED = 2_000  # memories whose match is computed: the score of each takes 2 µs
MAX_COLLECTION = (
    10_000  # memories that are counted to know how rare a word is; in more of them, who may see is asked later
)
MAX_READ = 40  # matches whose own words are compared with the search
MIN_VISIBLE = 20  # matches of a search that asks later; with fewer, it is made again
MIN_COLLECTION = 200  # in a few memories, each word is rare
MIN_RARE_WORDS = 1.5  # which no other memory has, and which are enough of a long request
_FOUND = f"FROM memory_index WHERE {FULL_TEXT_MATCH}"
_READ = "SELECT m.*, found.score FROM ({}) found JOIN memory m ON m.id=found.id ORDER BY found.score DESC, m.id DESC"
_BEST = _READ.format(f"SELECT rowid AS id, {FULL_TEXT_SCORE} AS score {_FOUND} ORDER BY score DESC LIMIT :limit")
_NEWEST = _READ.format(f"SELECT rowid AS id, 1.0 AS score {_FOUND} ORDER BY rowid DESC LIMIT :limit")


@dataclass(frozen=True, slots=True)
class _Words:
    """The words of a search with their weights: the rarer a word among the memories of a place, the more it weighs.

    `unseen` is the weight of a word that no memory has.
    """

    weights: Mapping[str, float]
    counts: Mapping[str, int]
    unseen: float
    scope: str  # the part of a full-text query that names who may see what is counted; "" for all

    @property
    def finding(self) -> list[str]:
        """The rarest words that some memory has, as far as their matches can be scored; at least one."""
        rarest = sorted((word for word in self.weights if self.counts[word]), key=lambda word: self.counts[word])
        left = MAX_SCORED
        found: list[str] = []
        for word in rarest:
            left -= self.counts[word]
            if found and left < 0:
                break
            found.append(word)
        return found


def search_memories(
    execute: Execute, place: Place, person: Author, text: str, limit: int = MAX_MATCHES
) -> list[Memory]:
    """Return the memories that match any word of a text, the best first, as far as this person may see them here.

    Of a person whom the text names, what they said is preferred, whether or not it contains the name: as if it had one
    more word of the text.
    """
    words = _weigh(execute, place, person, content_words(text)[:MAX_QUERY_WORDS])
    found = _find(execute, place, person, words, limit)
    speakers = {name: {*content_words(name)} & words.weights.keys() for name in {memory.name for memory in found}}
    if named := set().union(*speakers.values()):
        rest = {word: weight for word, weight in words.weights.items() if word not in named}
        before, words = words.finding, replace(words, weights=rest or words.weights)
        if words.finding != before:
            found = _find(execute, place, person, words, limit)
    if not found:
        return []
    stems = {stem(word): weight for word, weight in words.weights.items()}
    common = {stem(word) for word in words.weights} - {stem(word) for word in words.finding}
    word_score = found[0].score / len(words.finding)
    ranked = []
    for memory in found[:MAX_READ]:
        has = {stem(word) for word in content_words(memory.line)} & stems.keys()
        score = memory.score + sum(stems[word] for word in has & common)
        score += word_score if speakers.get(memory.name) else 0.0
        share = _share_of([stems[word] for word in has], words)
        ranked.append(replace(memory, score=score, share=share))
    return sorted([*ranked, *found[MAX_READ:]], key=lambda memory: -memory.score)


def _share_of(weights: Iterable[float], words: _Words) -> float:
    """Return the share of the words' weight; enough for a note if it is that of rare words of a long text."""
    total = sum(weights)
    share = total / (sum(words.weights.values()) or 1.0)
    return max(share, MIN_SHARE) if total >= MIN_RARE_WORDS * words.unseen else share


def _weigh(execute: Execute, place: Place, person: Author, words: Sequence[str]) -> _Words:
    scope = _scope(place, person)
    size = max(*_count(execute, [scope], MAX_COLLECTION), MIN_COLLECTION) if words else 0
    scope = f" AND {scope}" if size < MAX_COLLECTION else ""
    found = _count(execute, [f"{_any_of([word])}{scope}" for word in words], MAX_COUNTED)
    counts = dict(zip(words, found, strict=True))
    weights = {word: _rarity(min(count, size), size) for word, count in counts.items()}
    return _Words(weights, counts, _rarity(0, size), scope)


def _rarity(count: int, size: int) -> float:
    """Return the inverse document frequency, as in BM25."""
    return math.log(1 + (size - count + 0.5) / (count + 0.5))


def _count(execute: Execute, queries: Sequence[str], limit: int) -> list[int]:
    """Return how many memories match each of these queries, at most `limit`, in one statement."""
    if not queries:
        return []
    counts = (f"(SELECT count(*) FROM (SELECT 1 {_FOUND}{n} LIMIT :limit) found)" for n, _ in enumerate(queries))
    values = {f"query{number}": query for number, query in enumerate(queries)}
    return [*execute(f"SELECT {', '.join(counts)}", {**values, "limit": limit})[0]]


def _find(execute: Execute, place: Place, person: Author, words: _Words, limit: int) -> list[Memory]:
    finding = words.finding
    if not finding:
        return []
    sql = _NEWEST if words.counts[finding[0]] >= MAX_COUNTED else _BEST
    values = {"query": f"{_any_of(finding)}{words.scope}", "limit": limit}
    values |= {"words": [*map(_quote, finding)], "rarities": [words.weights[word] for word in finding]}
    found = visible_rows(execute, sql, place, person, values)
    if len(found) < min(MIN_VISIBLE, limit) and not words.scope:  # others see most of what matches
        values["query"] = f"{_any_of(finding)} AND {_scope(place, person)}"
        found = visible_rows(execute, sql, place, person, values)
    return found


def _scope(place: Place, person: Author) -> str:
    """Return a full-text query for what this person may see here, and some more."""
    tokens = " OR ".join(map(index_token, sorted(search_keys(place, person))))
    return f"audience: ({tokens})"


def _any_of(words: Iterable[str]) -> str:
    """Return a full-text query for any of these words."""
    return f"{{text before after}}: ({' OR '.join(map(_quote, words))})"


def _quote(word: str) -> str:
    """Return a word for a query: quoted, because plain words may be operators."""
    return '"{}"'.format(word.replace('"', ""))


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
