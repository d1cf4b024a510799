"""Store facts: confirm what is known, and let a new fact replace the ones that it contradicts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent.memory.changes import is_same, is_update
from agent.memory.extraction import Fact, Statement
from agent.memory.visibility import LinkKind, Memory, Place, audience_of, write_links
from agent.memory.words import own_words, plain_subject
from agent.messages import Author, Message
from bot.database.database import Execute
from bot.storage import memory as stored
from bot.storage.memory_search import search_memories


@dataclass(frozen=True, slots=True)
class NewFact:
    """A fact to store, with its source. `before` and `after` are the words of the same person around it."""

    fact: Fact
    source: Statement
    confidence: float
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class StoredFact:
    """What became of a fact: the memory `id` says it, and `replaced` are not in force any more.

    `kept` are older ones that stay in force in shared chats. With `newer`, the person said something else later, which
    holds instead.
    """

    id: int
    replaced: tuple[Memory, ...] = ()
    kept: tuple[Memory, ...] = ()
    newer: Memory | None = None


def place_of(message: Message) -> Place:
    """Return where a message was written."""
    return Place(message.thread, message.private)


def statement_of(message: Message, outcome: str = "") -> Statement:
    """Return what a person wrote themselves in a message."""
    return Statement(own_words(message.text), message.key, message.time, outcome)


def store_fact(execute: Execute, place: Place, person: Author, new: NewFact) -> StoredFact:
    """Store a fact. A repeated one confirms what is known; one that changes older ones replaces them.

    What was said later holds, in whatever order facts are stored.
    """
    fact, source = new.fact, new.source
    audience = audience_of(fact.scope, fact.kind, place, person.id)
    named = stored.find_memories(execute, fact.replaces, place, person)
    subject = fact.subject or next((memory.subject for memory in named if memory.subject), "")
    found = search_memories(execute, place, person, fact.line)
    about = [each for each in found if each.owner == person.id and _is_about(each, subject, fact.text)]
    here = [memory for memory in about if memory.audience == audience]
    if newer := next((memory for memory in here if memory.said > source.at), None):
        return StoredFact(newer.id, newer=newer)
    memory = _make_memory(place, person, new, audience, subject)
    if same := next((each for each in here if is_same(each.text, fact.text)), None):
        stored.confirm_memory(execute, replace(memory, id=same.id))
    number = same.id if same else stored.add_memory(execute, memory, new.before, new.after)
    older = {each.id: each for each in (*named, *about) if each.owner == person.id and each.said <= source.at}
    older.pop(number, None)
    kept = {each.id for each in older.values() if place.private and each.audience != audience}  # of shared chats
    replaced = tuple(each for each in older.values() if each.id not in kept)
    for old in replaced:
        stored.supersede_memory(execute, old.id, number)
    if replaced:
        before = (same or memory).linked
        new_links = [(LinkKind.REPLACES, old.id) for old in replaced]
        stored.store_links(execute, number, write_links([*before, *new_links]))
    return StoredFact(number, replaced, tuple(older[each] for each in kept))


def _is_about(memory: Memory, subject: str, text: str) -> bool:
    """Return whether a fact about a subject says again or changes what a memory says."""
    if subject and plain_subject(memory.subject) == plain_subject(subject):
        return True
    return is_update(memory.text, text)


def _make_memory(place: Place, person: Author, new: NewFact, audience: str, subject: str) -> Memory:
    fact, source = new.fact, new.source
    return Memory(
        id=0,
        account=place.account,
        owner=person.id,
        audience=audience,
        kind=fact.kind,
        subject=subject,
        text=fact.text,
        confidence=new.confidence,
        said=source.at,
        used=source.at,
        uses=0,
        name=person.name,
        thread=str(place.thread),
        message=source.key,
        links=" ".join(map(str, fact.related)),
    )
