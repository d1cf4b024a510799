"""Decide who may see a memory, by where it was said, who asks, and in which place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TypeAlias
from urllib.parse import quote

from agent.messages import Author, Thread


class MemoryKind(StrEnum):
    """What a memory says."""

    PREFERENCE = "preference"
    CORRECTION = "correction"
    STYLE = "style"  # how the person writes, or wants texts written
    CONTEXT = "context"  # a fact about the person or their work
    OUTCOME = "outcome"  # what a task led to
    RELATION = "relation"  # who is who
    APPROVAL = "approval"  # permission that the person gave once; it permits nothing later


HABITS = frozenset({MemoryKind.PREFERENCE, MemoryKind.CORRECTION, MemoryKind.STYLE})
"""The kinds that are used without a match, and also in other shared chats of the workspace."""


class LinkKind(StrEnum):
    """How one memory concerns another."""

    RELATED = "related"  # as the extraction found it
    ABOUT = "about"
    DECIDED_BY = "decided_by"
    REPLACES = "replaces"  # the other one is not in force any more
    PART_OF = "part_of"


Links: TypeAlias = tuple[tuple[LinkKind, int], ...]


class MemoryScope(StrEnum):
    """For whose turns a memory is."""

    PERSON = "person"
    CHAT = "chat"
    WORKSPACE = "workspace"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a turn runs. `private` marks a direct chat, which only the person and the bot read."""

    thread: Thread
    private: bool

    @property
    def account(self) -> str:
        """The bot's account on a platform; memories never leave it."""
        return _key(self.thread.channel, self.thread.workspace)

    @property
    def chat(self) -> str:
        """The chat, with all its threads."""
        return _key(self.thread.channel, self.thread.workspace, "chat", self.thread.chat)


@dataclass(frozen=True, slots=True)
class Memory:
    """One stored fact.

    `owner` is the id of the person who said it, in `thread` at `said` (unix time) in the message `message`. `audience`
    comes from `audience_of`. `subject` is what it is about, so specific that two facts about it contradict each other,
    or empty. `used` is the time of its last use and `uses` how often it was used. `links` are ids of other
    memories, each behind its kind and a colon; a bare one is of a related memory.
    """

    id: int
    account: str
    owner: str
    audience: str
    kind: MemoryKind
    subject: str
    text: str
    confidence: float
    said: float
    used: float
    uses: int
    name: str
    thread: str
    message: str
    links: str = ""
    score: float = 0.0  # how well it matches a search
    share: float = 0.0  # of the meaning of the search that it has

    @property
    def linked(self) -> Links:
        """The links with their kinds."""
        parts = (each.rpartition(":") for each in self.links.split())
        return tuple((LinkKind(kind or LinkKind.RELATED), int(number)) for kind, _colon, number in parts)

    @property
    def line(self) -> str:
        """The fact with its subject."""
        return f"{self.subject}: {self.text}" if self.subject else self.text


def write_links(links: Iterable[tuple[LinkKind, int]]) -> str:
    """Return links as `Memory.links` has them."""
    return " ".join(str(number) if kind is LinkKind.RELATED else f"{kind}:{number}" for kind, number in links)


def audience_of(scope: MemoryScope, kind: MemoryKind, place: Place, owner: str) -> str:
    """Return the key of those who may see a new memory. What is said in a direct chat stays private."""
    if place.private:
        return _direct(place, owner)
    if scope is MemoryScope.WORKSPACE:
        return _workspace(place)
    if scope is MemoryScope.CHAT:
        return place.chat
    return _person(place, owner) if kind in HABITS else _in_chat(place, owner)


@lru_cache(maxsize=256)  # a search asks for each row
def visible_audiences(place: Place, person: Author) -> frozenset[str]:
    """Return the audiences that a person belongs to in a place."""
    seen = {_person(place, person.id), place.chat, _in_chat(place, person.id)}
    if place.private:
        seen.add(_direct(place, person.id))
    if not person.guest:
        seen.add(_workspace(place))
    return frozenset(seen)


def may_see(memory: Memory, place: Place, person: Author) -> bool:
    """Decide whether a turn of this person in this place may use a memory. It is the only place that decides.

    A shared chat never shows what was said in a direct chat, and of another shared chat only habits of the same person.
    A direct chat also shows everything that this person said elsewhere in the same workspace.
    """
    if memory.account != place.account:
        return False
    return (place.private and memory.owner == person.id) or memory.audience in visible_audiences(place, person)


def is_of_workspace(memory: Memory) -> bool:
    """Return whether everybody in the workspace may see a memory."""
    return memory.audience == f"{memory.account}/workspace"


def index_keys(memory: Memory) -> frozenset[str]:
    """Return the keys under which the index has a memory, for `search_keys`."""
    owner = _key(memory.account, memory.owner)
    is_direct = memory.audience.split("/")[2] == "direct"
    return frozenset({owner, memory.audience} if is_direct else {owner, f"{owner}/shared", memory.audience})


def search_keys(place: Place, person: Author) -> frozenset[str]:
    """Return a few keys under which the index has all memories that a person may see in a place, and others."""
    owner = _key(place.account, person.id)
    return frozenset({owner if place.private else f"{owner}/shared", place.chat, _workspace(place)})


@lru_cache(maxsize=1024)
def _key(*parts: str) -> str:
    return "/".join(quote(part, safe="") for part in parts)


def _direct(place: Place, person: str) -> str:
    return _key(place.thread.channel, place.thread.workspace, "direct", person)


def _person(place: Place, person: str) -> str:
    return _key(place.thread.channel, place.thread.workspace, "person", person)


def _in_chat(place: Place, person: str) -> str:
    return f"{place.chat}/{_key(person)}"


def _workspace(place: Place) -> str:
    return _key(place.thread.channel, place.thread.workspace, "workspace")
