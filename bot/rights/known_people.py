"""Whom a word of a command names: people whom Fawn has met, and ids that a platform can have given."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.blocks import command_hint
from agent.messages import Thread
from bot.base.display_names import display_name
from bot.base.plain_text import plain_line, without_formatting
from bot.config.loader import channel_modules
from bot.database import audit
from bot.database.database import Execute
from bot.database.web_people import true_person
from bot.rights.access import LOCAL_CHANNEL
from bot.storage import account_links, inbox, people, transcripts
from catalogue import N_, _, list_items
from channels.shared.ids import IdForms

MAX_SUGGESTED = 3
SOMEBODY = N_("a colleague")
LINKED_WITH = N_("This account is linked with {accounts}. `{command}` ends that.")
MENTION = re.compile(r"<@!?(?P<id>[^\s|>/]+)(?:\|(?P<name>[^>]*))?>|@?(?P<plain>[^\s/@<>|]+)")


def is_possible_id(execute: Execute, channel: str, id: str) -> bool:
    """Return whether Fawn has met this person, or the platform's ids look like this."""
    if people.find_person(execute, channel, id) or audit.find_alias(execute, audit.person_name(channel, id)):
        return True
    forms: IdForms | None = getattr(channel_modules().get(channel), "IDS", None)
    return forms is not None and forms.certain and forms.is_person(id)


def name_of(execute: Execute, channel: str, id: str) -> str:
    """Return how people call a person; the id where no name is known."""
    known = people.find_person(execute, channel, id)
    return (known.name if known else "") or inbox.latest_name(execute, audit.person_name(channel, id)) or id


def call_person(execute: Execute, channel: str, id: str, name: str = "") -> str:
    """Return how a text in a chat names a person: an id that no reader knows is none (Feishu tells no name without
    a permission). That of the console is the name of a user of this machine."""
    named = name if name != id else ""
    channel, id = true_person(channel, id)
    known = named or name_of(execute, channel, id)
    return plain_line(known) if known and (known != id or channel == LOCAL_CHANNEL) else _(SOMEBODY)


def names_of_channel(execute: Execute, channel: str) -> dict[str, str]:
    """Return id → name of the people whose name is known."""
    known = {row.person: row.name for row in people.list_people(execute, channel) if row.name}
    return known | transcripts.recent_names(execute, channel)


@dataclass(frozen=True, slots=True)
class KnownPerson:
    """A person whom a word names. `name` is "" where it is unknown, and `place` a chat where they wrote."""

    id: str
    name: str = ""
    place: Thread | None = None

    @property
    def shown(self) -> str:
        """The person in an answer: names can be chosen by anybody, so the id stands with it."""
        name = without_formatting(self.name)
        return f"{name} (`{self.id}`)" if name else f"`{self.id}`"


def show_account(channel: str, id: str, name: str) -> str:
    """Return an account as people of other platforms read it."""
    return _("{person} on {channel}", person=KnownPerson(id, name).shown, channel=display_name(channel))


def describe_links(execute: Execute, channel: str, person: str) -> str:
    """Say with which accounts an account is linked; "" for none."""
    others = account_links.others_of(execute, channel, person)
    accounts = list_items(show_account(each.channel, each.person, each.name) for each in others)
    return _(LINKED_WITH, accounts=accounts, command=command_hint("unlink")) if others else ""


def find_people(execute: Execute, channel: str, words: str) -> list[KnownPerson]:
    """Return whom words name: a mention, an id, or the name of people whom Fawn has met; a part of it if no whole one
    is the same."""
    known, found = names_of_channel(execute, channel), MENTION.fullmatch(words)
    if found and (id := found["id"]):
        return [KnownPerson(id, found["name"] or known.get(id, ""))]
    word = words.strip().removeprefix("@").casefold()
    for id in (words.strip(), found["plain"]) if found else ():  # an id of Matrix begins with "@"
        if is_possible_id(execute, channel, id):
            return [KnownPerson(id, known.get(id, ""))]
    whole = [id for id, name in known.items() if name.casefold() == word]
    partly = [id for id, name in known.items() if word in name.casefold().split()]
    return [KnownPerson(id, known[id]) for id in whole or partly]


def people_around(execute: Execute, channel: str, person: str) -> Mapping[str, KnownPerson]:
    """Return id → person of those who wrote in chats in which this one wrote, too, the latest first."""
    wrote = transcripts.recent_authors(execute, channel)
    chats = {chat for chat, id, _name in wrote if id == person}
    found: dict[str, KnownPerson] = {}
    for chat, id, name in wrote:
        if chat in chats and id not in (person, *found):
            found[id] = KnownPerson(id, name, Thread.parse(chat))
    return found


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
