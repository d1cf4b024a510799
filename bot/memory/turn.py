"""The memory of one turn: what it recalls, and what the agent's tool saves, finds and forgets."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import TypeAlias

from agent.memory.embeddings import EmbeddedRequest, EmbeddingsRefused, vector_key
from agent.memory.extraction import Fact, Statement, is_unfit
from agent.memory.ranking import choose_notes, concerning_memories, format_notes, fuse_matches, rank_memories
from agent.memory.visibility import LinkKind, Memory, MemoryKind, MemoryScope, Place, write_links
from agent.memory.words import content_words, find_grounds, own_words, stem
from agent.messages import Author
from bot.database.database import Database, Execute
from bot.journey import claims
from bot.memory.facts import NewFact, StoredFact, statement_of, store_fact
from bot.rights.claimed_run import ClaimedRun
from bot.rights.current import Current
from bot.rights.deeds import CHANGE_WORKSPACE_NOTE
from bot.storage import memory as stored
from bot.storage import runs, transcripts
from bot.storage.memory_search import nearest_memories, search_memories

log = logging.getLogger(__name__)

Embed: TypeAlias = Callable[[str], Awaitable[EmbeddedRequest | None]]
"""Embeds a text, if it can. Raises EmbeddingsRefused."""

MAX_SEARCHED = 10  # in an answer of the tool
MAX_LINKS = 10  # of one note
MAX_LOOKED_THROUGH = 10_000  # notes, for those that are linked with one
MAX_EARLIER_MESSAGES = 50  # of the requester in the conversation, whose words may be saved
TOGETHER = (
    "several people take part in this request, and a memory is one person's alone. They can use the command `memory`."
)
TOOL_CONFIDENCE = 0.9  # of what a person asks to remember


class TurnMemory:
    """`agent.core.context.MemoryNotes` of one turn. It acts for the requester and in their place only."""

    def __init__(
        self, store: Database, current: Current, embed: Embed, job: ClaimedRun, place: Place, person: Author
    ) -> None:
        self._store = store
        self._current = current
        self._embed = embed
        self._job = job
        self._place = place
        self._person = person
        self._recalled: list[Memory] = []
        self._embedded: EmbeddedRequest | None = None  # the request
        self.notes = ""

    def used_by(self, answer: str) -> list[int]:
        """Return the memories that match the request and share a word with the answer that the request lacks."""
        new = {*map(stem, content_words(answer))} - {*map(stem, content_words(self._request))}
        return [
            memory.id
            for memory in self._recalled
            if memory.score > 0 and not new.isdisjoint(map(stem, content_words(memory.line)))
        ]

    @property
    def _request(self) -> str:
        said = [own_words(each.text) for each in self._job.messages if each.author.id == self._person.id]
        return "\n".join(said)

    async def embed_request(self) -> None:
        """Embed the request for `choose_memories`, within the deadline; without, it compares words only."""
        self._embedded = await self._embed_text(self._request)

    async def _embed_text(self, text: str) -> EmbeddedRequest | None:
        try:
            return await self._embed(text)
        except EmbeddingsRefused as error:  # the turn can do without
            log.info("memory.not_embedded reason=%s", error)
            return None

    def choose_memories(self, execute: Execute) -> list[Memory]:
        """Return the memories for the request."""
        found = self._find(execute, self._request, self._embedded)
        concerning = concerning_memories(found)
        linked = stored.find_memories(execute, _linked_ids(concerning[:3]), self._place, self._person)
        habits = stored.habits_of(execute, self._place, self._person)
        tokens = self._current.config.memory.tokens
        return choose_notes(concerning, [*habits, *linked], time.time(), tokens)

    def take_memories(self, chosen: Sequence[Memory]) -> None:
        """Write these memories into the notes."""
        self._recalled = [*chosen]
        self._write_notes()

    def _find(self, execute: Execute, text: str, embedded: EmbeddedRequest | None) -> list[Memory]:
        found = search_memories(execute, self._place, self._person, text)
        if embedded is None:
            return found
        config = self._current.config.memory.embeddings
        near = nearest_memories(execute, self._place, self._person, vector_key(config), embedded, config.min_similarity)
        return fuse_matches(found, near)

    def _write_notes(self) -> None:
        self.notes = format_notes(self._recalled, self._person.name)

    async def save(self, text: str, quote: str, kind: MemoryKind, scope: MemoryScope, replaces: int) -> str:
        """Store a fact that the requester wrote in this conversation."""
        text = " ".join(text.split())
        if is_unfit(text):
            return "Not saved: a note is one short sentence, without passwords and keys."

        def work(execute: Execute) -> str | StoredFact:
            if not runs.is_alone(execute, self._job.run, self._person.id):
                return f"Not saved: {TOGETHER}"
            place, may = self._place, self._current.access.may_do
            shared = not place.private and may(execute, place.thread, self._person.id, CHANGE_WORKSPACE_NOTE)
            if scope is MemoryScope.WORKSPACE and not shared:
                return "Not saved: only an operator can save a note for the whole workspace, in a shared chat."
            statements = {each.text: each for each in self._statements(execute)}
            ground = find_grounds(text, quote, statements)
            if ground is None:
                return (
                    f"Not saved: `quote` must be the exact words of {self._person.name} in this conversation, and the"
                    " note must say what they say. What files, pages, tools and other people say is not saved."
                )
            if replaces and not self._own_note(execute, replaces):
                return f"Not saved: there is no note #{replaces} of {self._person.name} that it could replace."
            fact = Fact(text, "", MemoryKind(kind), 0, TOOL_CONFIDENCE, MemoryScope(scope), (replaces,))
            return store_fact(execute, self._place, self._person, NewFact(fact, statements[ground], TOOL_CONFIDENCE))

        answer = await self._store.run(work)
        if isinstance(answer, str):
            return answer
        self._drop_notes({memory.id for memory in answer.replaced})
        return _describe_stored(answer)

    def _own_note(self, execute: Execute, number: int) -> Memory | None:
        """Return a note of the requester that is in force and visible here."""
        found = stored.find_memories(execute, [number], self._place, self._person)
        return found[0] if found and found[0].owner == self._person.id else None

    def _drop_notes(self, ids: Collection[int]) -> None:
        """Leave notes out of the next calls of the turn."""
        self._recalled = [memory for memory in self._recalled if memory.id not in ids]
        self._write_notes()

    async def search(self, text: str) -> str:
        """Return the memories that match any word."""
        if numbered := re.fullmatch(r"#?(\d{1,18})", text.strip()):
            around = await self._store.run(partial(self._around, number=int(numbered[1])))
            return format_notes(around, self._person.name) or "Nothing found."
        embedded = await self._embed_text(text)
        found = await self._store.run(partial(self._find, text=text, embedded=embedded))
        return format_notes(rank_memories(found, time.time())[:MAX_SEARCHED], self._person.name) or "Nothing found."

    def _around(self, execute: Execute, number: int) -> list[Memory]:
        """Return a memory with those that it names and those that name it, as far as they are visible here."""
        seen = stored.list_memories(execute, self._place, self._person, MAX_LOOKED_THROUGH)
        near = {to for memory in seen if memory.id == number for _kind, to in memory.linked}
        return [
            memory for memory in seen if memory.id in {number, *near} or number in {to for _kind, to in memory.linked}
        ][:MAX_SEARCHED]

    async def forget(self, number: int, quote: str) -> str:
        """Delete a memory of the requester, who asked for it in this conversation."""
        deleted = f"Note #{number} is deleted."

        def work(execute: Execute) -> str:
            if not runs.is_alone(execute, self._job.run, self._person.id):
                return f"Not deleted: {TOGETHER}"
            note = self._own_note(execute, number)
            if note is None:
                return f"There is no note #{number} of {self._person.name}."
            if not any(_asks_to_forget(note, quote, each.text) for each in self._statements(execute)):
                return (
                    f"Not deleted: `quote` must be the exact words of {self._person.name} in this conversation that ask"
                    " to forget this note."
                )
            stored.forget_memory(execute, number)
            return deleted

        answer = await self._store.run(work)
        if answer == deleted:
            self._drop_notes({number})
        return answer

    async def link(self, number: int, kind: LinkKind, to: int) -> str:
        """Say how one memory of the requester concerns another."""

        def work(execute: Execute, note: Memory) -> str:
            links = [each for each in note.linked if each != (kind, to)]
            if len(links) >= MAX_LINKS:
                return f"Not linked: note #{number} has {MAX_LINKS} links."
            stored.store_links(execute, number, write_links([*links, (kind, to)]))
            return f"Note #{number} is linked: {kind} #{to}."

        return await self._change_links(number, to, work)

    async def unlink(self, number: int, to: int) -> str:
        """Delete the links between two memories of the requester."""

        def work(execute: Execute, note: Memory) -> str:
            stored.store_links(execute, number, write_links(each for each in note.linked if each[1] != to))
            return f"Note #{number} is not linked with #{to} any more."

        return await self._change_links(number, to, work)

    async def _change_links(self, number: int, to: int, change: Callable[[Execute, Memory], str]) -> str:
        """Change the links of a note that the requester sees here, to another one of them."""

        def work(execute: Execute) -> str:
            if not runs.is_alone(execute, self._job.run, self._person.id):
                return f"Not changed: {TOGETHER}"
            for each in (number, to):
                if number == to or not self._own_note(execute, each):
                    return f"There is no other note #{each} of {self._person.name}."
            note = self._own_note(execute, number)
            return change(execute, note) if note else ""

        return await self._store.run(work)

    def _statements(self, execute: Execute) -> list[Statement]:
        """Return what the requester wrote: in this run, then earlier in this conversation."""
        messages = [*self._job.messages, *claims.steered_messages(execute, self._job)]
        earlier = transcripts.said_by(execute, self._job.conversation, self._person.id, MAX_EARLIER_MESSAGES)
        return [
            *(statement_of(each) for each in messages if each.is_by_person and each.author.id == self._person.id),
            *(Statement(own_words(each.text), each.item.removeprefix("message:"), each.at) for each in earlier),
        ]


def _describe_stored(fact: StoredFact) -> str:
    """Tell the model what became of a fact, so that it can tell the person."""
    if fact.newer:
        return f"Not saved: the person said later, in note #{fact.newer.id}: {fact.newer.line}"
    lines = [f"Saved as note #{fact.id}."]
    lines += [f"It replaces note #{each.id}, which is no longer in force: {each.line}" for each in fact.replaced]
    lines += [f"Note #{each.id} stays in force in shared chats: {each.line}" for each in fact.kept]
    return "\n".join(lines)


def _linked_ids(memories: Sequence[Memory]) -> list[int]:
    return [number for memory in memories for _kind, number in memory.linked]


def _asks_to_forget(memory: Memory, quote: str, said: str) -> bool:
    """Return whether a person wrote these words, and they name the memory by its number or a word of it."""
    named = {f"{memory.id}", *content_words(memory.line)}
    return bool(quote.strip()) and quote.strip() in said and bool(named & {*content_words(quote)})
