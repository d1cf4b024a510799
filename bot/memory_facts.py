"""Store facts: confirm what is known, and let a new fact replace the ones that it contradicts."""

from __future__ import annotations

from dataclasses import dataclass

from agent.memory.extraction import Fact, Statement
from agent.memory.visibility import Memory, Place, audience_of
from agent.memory.words import are_similar, own_words, plain_subject
from agent.messages import Author, Message
from bot.storage import memory as stored
from bot.storage.database import Execute


@dataclass(frozen=True, slots=True)
class NewFact:
    """A fact to store, with its source. `before` and `after` are the words of the same person around it."""

    fact: Fact
    source: Statement
    confidence: float
    before: str = ""
    after: str = ""


def place_of(message: Message) -> Place:
    """Return where a message was written."""
    return Place(message.thread, message.private)


def statement_of(message: Message, outcome: str = "") -> Statement:
    """Return what a person wrote themselves in a message."""
    return Statement(own_words(message.text), message.key, message.time, outcome)


def store_fact(execute: Execute, place: Place, person: Author, new: NewFact) -> int:
    """Store a fact and return its id. A repeated fact is confirmed; one that contradicts older ones replaces them."""
    fact, source = new.fact, new.source
    audience = audience_of(fact.scope, fact.kind, place, person.id)
    visible = stored.search_memories(execute, place, person, fact.line)
    own = [memory for memory in visible if memory.owner == person.id]
    replaced = [each for each in stored.find_memories(execute, fact.replaces, place, person) if each.owner == person.id]
    subject = fact.subject or next((memory.subject for memory in replaced if memory.subject), "")
    if same := next((m for m in own if m.audience == audience and are_similar(m.line, fact.line)), None):
        stored.confirm_memory(execute, same.id, new.confidence, source.at)
        return same.id
    replaced += [each for each in own if subject and plain_subject(each.subject) == plain_subject(subject)]
    number = stored.add_memory(
        execute,
        Memory(
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
        ),
        new.before,
        new.after,
    )
    for old in {each.id: each for each in replaced if each.said <= source.at}.values():
        if old.audience == audience or not place.private:  # a shared chat keeps what it knew
            stored.supersede_memory(execute, old.id, number)
    return number
