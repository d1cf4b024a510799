"""Know the rooms of the account: how many people are in each, their names, and what was said lately."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from channels.shared.caches import LatestDict
from channels.shared.visible_text import dict_of, dicts_in, text_of

MAX_NAMES = 500  # of a room
MAX_EVENTS = 20_000  # that are known by id
MAX_NAME_CHARS = 100


@dataclass(slots=True)
class Room:
    """One room. `heroes` are its other members, where there are few."""

    joined: int = 0
    invited: int = 0
    heroes: tuple[str, ...] = ()
    encrypted: bool = False
    names: dict[str, str] = field(default_factory=lambda: LatestDict(MAX_NAMES))

    @property
    def is_direct(self) -> bool:
        """Whether nobody else is there than the bot and one person."""
        return self.joined + self.invited <= 2


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of an event: who sent it, in which thread and when, and what a reaction says of which message."""

    sender: str
    topic: str = ""
    reacts_to: str = ""
    reaction: str = ""
    sent: float = 0.0  # unix time


class Rooms:
    """The joined rooms by id, and the latest events by id."""

    def __init__(self) -> None:
        self.joined: dict[str, Room] = {}
        self.events: LatestDict[str, Known] = LatestDict(MAX_EVENTS)
        self.redacted: LatestDict[str, bool] = LatestDict(MAX_EVENTS)

    def room(self, id: str) -> Room:
        """Return what is known of a room. One of which nothing is known does not count as joined by that."""
        return self.joined.get(id) or Room()

    def join(self, id: str) -> Room:
        """Return a room that the account is in."""
        return self.joined.setdefault(id, Room())

    def apply(self, id: str, changed: Mapping[str, Any]) -> Room:
        """Take over what an answer of /sync says about a joined room."""
        room = self.join(id)
        summary = dict_of(changed.get("summary"))
        for name, attribute in (("m.joined_member_count", "joined"), ("m.invited_member_count", "invited")):
            if isinstance(count := summary.get(name), int):
                setattr(room, attribute, count)
        if isinstance(heroes := summary.get("m.heroes"), list):
            room.heroes = tuple(each for each in heroes if isinstance(each, str))
        self.apply_state(room, dicts_in(dict_of(changed.get("state")).get("events")))
        self.apply_state(room, dicts_in(dict_of(changed.get("timeline")).get("events")))
        return room

    def apply_state(self, room: Room, events: Iterable[Mapping[str, Any]]) -> None:
        for event in events:
            if not isinstance(key := event.get("state_key"), str):
                continue
            if event.get("type") == "m.room.encryption":
                room.encrypted = True  # it cannot be taken back
            elif event.get("type") == "m.room.member":
                name = text_of(dict_of(event.get("content")).get("displayname"))
                room.names[key] = " ".join(name.split())[:MAX_NAME_CHARS]

    def forget(self, id: str) -> None:
        """Note that the account is no longer in a room."""
        self.joined.pop(id, None)

    def direct_with(self, person: str) -> str:
        """Return the room in which nobody else is than the bot and this person, "" for none."""
        found = (id for id, room in self.joined.items() if room.is_direct and room.heroes == (person,))
        return next(found, "")
