"""Tell the ids of a platform from names, for the configuration and `/access`."""

from __future__ import annotations

import re
from dataclasses import dataclass


def joined_id(person: str, company: str) -> str:
    """Return the id of a person whose platform numbers people in each company: with the company, if that is another
    one than the bot's ("": it is the same). No own id has a colon."""
    return f"{company}:{person}" if company else person


@dataclass(frozen=True, slots=True)
class IdForms:
    """Patterns of whole ids: of people, and of chats and workspaces. `looks` says them to people.

    `certain`: a name cannot look like the id of a person. `direct`: what the address of a direct chat has before the id
    of its person.
    """

    person: str
    place: str
    looks: str
    certain: bool = True
    direct: str = ""

    def is_person(self, text: str) -> bool:
        """Return whether a person can have this id."""
        return bool(re.fullmatch(self.person, text))

    def is_place(self, text: str) -> bool:
        """Return whether a chat or workspace can have this id."""
        return bool(re.fullmatch(self.place, text))

    def is_any(self, text: str) -> bool:
        """Return whether something can have this id."""
        return self.is_person(text) or self.is_place(text)

    def is_chat(self, text: str) -> bool:
        """Return whether a chat can have this address: an id, or that of a direct chat."""
        is_direct = (
            bool(self.direct) and text.startswith(self.direct) and self.is_person(text.removeprefix(self.direct))
        )
        return self.is_any(text) or is_direct

    def is_subject(self, text: str) -> bool:
        """Return whether a role can be given to this: an id, or a person in a place, as `PLACE/PERSON`."""
        place, slash, person = text.rpartition("/")
        return self.is_any(text) or bool(slash and self.is_place(place) and self.is_person(person))
