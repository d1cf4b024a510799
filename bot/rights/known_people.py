"""Whom a word of a command names: people whom Fawn has met, and ids that a platform can have given."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from bot.config.loader import channel_modules
from bot.storage import audit, people, transcripts
from bot.storage.database import Execute
from channels.shared.ids import IdForms

MAX_SUGGESTED = 3


def is_possible_id(execute: Execute, channel: str, id: str) -> bool:
    """Return whether Fawn has met this person, or the platform's ids look like this."""
    if people.find_person(execute, channel, id) or audit.find_alias(execute, audit.person_name(channel, id)):
        return True
    forms: IdForms | None = getattr(channel_modules().get(channel), "IDS", None)
    return forms is not None and forms.certain and forms.is_person(id)


def names_of_channel(execute: Execute, channel: str) -> dict[str, str]:
    """Return id → name of the people whose name is known."""
    known = {row.person: row.name for row in people.list_people(execute, channel) if row.name}
    return known | transcripts.recent_names(execute, channel)


def suggest_people(execute: Execute, channel: str, word: str) -> Sequence[tuple[str, str]]:
    """Return id and name of people with such a name."""
    known = names_of_channel(execute, channel)
    by_name: dict[str, list[str]] = {}
    for id, name in known.items():
        for part in {name.casefold(), *name.casefold().split()}:
            by_name.setdefault(part, []).append(id)
    close = difflib.get_close_matches(word.casefold(), by_name, MAX_SUGGESTED)
    ids = dict.fromkeys(id for name in close for id in by_name[name])
    return [(id, known[id]) for id in ids][:MAX_SUGGESTED]
