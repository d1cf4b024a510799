"""Tell the ids of a platform from names, for the configuration and `/access`."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IdForms:
    """Patterns of whole ids: of people, and of chats and workspaces. `looks` says them to people.

    `certain`: a name cannot look like the id of a person.
    """

    person: str
    place: str
    looks: str
    certain: bool = True

    def is_person(self, text: str) -> bool:
        """Return whether a person can have this id."""
        return bool(re.fullmatch(self.person, text))

    def is_place(self, text: str) -> bool:
        """Return whether a chat or workspace can have this id."""
        return bool(re.fullmatch(self.place, text))

    def is_any(self, text: str) -> bool:
        """Return whether something can have this id."""
        return self.is_person(text) or self.is_place(text)

    def is_subject(self, text: str) -> bool:
        """Return whether a role can be given to this: an id, or a person in a place, as `PLACE/PERSON`."""
        place, slash, person = text.rpartition("/")
        return self.is_any(text) or bool(slash and self.is_place(place) and self.is_person(person))
