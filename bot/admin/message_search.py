"""Find the messages that an operator means with a person, a chat, a time or a link, for `fawn why`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from agent.messages import Message, Thread
from agent.stored_json import Damaged
from bot.config.addresses import chat_address, person_address
from bot.database.database import Execute
from bot.journey.ignored import IgnoredEvent
from bot.rights.known_people import names_of_channel
from bot.storage import inbox
from bot.storage.inbox import InboxRow

SEARCHED = 2000  # latest rows of the inbox
MINUTE, DAY = 60.0, 86400.0
LINK = re.compile(r"https?://\S+")
MOMENT = re.compile(r"(?:(\d{4}-\d\d-\d\d)[ T])?\b(\d{1,2}):(\d\d)\b")
SLACK_TIME = re.compile(r"p(\d{10})(\d{6})")  # of a link; the message's id has a dot
WORD = re.compile(r"\b(?:in|at|from|by)\b")
TELEGRAM_GROUP = "-100"  # what a link leaves out of the id of a supergroup


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an operator said of a message. "" and None say nothing."""

    who: str  # a person, or else a chat
    chat: str
    link: frozenset[str]  # the parts of a link
    at: float | None  # the beginning of a minute

    @classmethod
    def parse(cls, words: str, now: float) -> Wanted:
        """Read words such as `jane in ops at 14:03`; a time without a date is the latest one that has been."""
        link, moment = LINK.search(words), None
        words = LINK.sub("", words)
        if found := MOMENT.search(words):
            moment = _moment(found[1], int(found[2]), int(found[3]), now)
            words = MOMENT.sub("", words, count=1)
        head, marked, chat = words.partition("#")
        if not marked:
            head, _in, chat = words.partition(" in ")
        parts = re.split(r"[/?=&#]", link[0]) if link else []
        known = frozenset(SLACK_TIME.sub(r"\1.\2", each) for each in parts if each)
        return cls(_bare(head), _bare(chat), known, moment)

    def fits(self, at: float, thread: Thread, names: Sequence[str], chat: str, id: str) -> bool:
        """Return whether a message is meant that came at this time, from a person with these names."""
        if self.at is not None and not self.at - MINUTE <= at < self.at + 2 * MINUTE:
            return False
        places = {chat.casefold().lstrip("#"), thread.chat.casefold(), thread.chat.lstrip("-")}
        places |= {thread.chat.removeprefix(TELEGRAM_GROUP), chat_address(thread).casefold()}
        if self.link:
            return id in self.link and bool(places & {each.casefold() for each in self.link})
        known = {name.casefold() for name in names} | {part for name in names for part in name.casefold().split()}
        if self.chat and self.chat not in places:
            return False
        return not self.who or self.who in known or (not self.chat and self.who in places)


def find_messages(
    execute: Execute, what: str, ignored: Callable[[], Sequence[IgnoredEvent]], now: float
) -> tuple[list[InboxRow], list[dict[str, Any]]]:
    """Return the latest stored rows that fit the words, and what was ignored, the latest first."""
    wanted = Wanted.parse(what, now)
    if wanted == Wanted("", "", frozenset(), None):
        return [], []
    rows = [row for row, message in _stored(execute) if _fits(wanted, row, message)]
    names: dict[str, Mapping[str, str]] = {}
    left = []
    for each in reversed(ignored()):
        thread = Thread.parse(each.thread)
        if thread.channel not in names:
            names[thread.channel] = names_of_channel(execute, thread.channel)
        name = names[thread.channel].get(each.person, "")
        if each.at > now - DAY and wanted.fits(
            each.at, thread, (each.person, name, person_address(thread.channel, each.person)), each.chat, each.id
        ):
            left.append({**asdict(each), "name": name})
    return rows, left


def _stored(execute: Execute) -> Iterator[tuple[InboxRow, Message]]:
    for row in inbox.latest(execute, SEARCHED):
        with suppress(Damaged):
            yield row, row.message


def _fits(wanted: Wanted, row: InboxRow, message: Message) -> bool:
    author = message.author
    names = (author.id, author.name, person_address(message.thread.channel, author.id))
    return wanted.fits(row.received, message.thread, names, message.chat_name, message.id)


def _moment(date: str | None, hour: int, minute: int, now: float) -> float | None:
    if hour > 23 or minute > 59:
        return None
    day = time.strptime(date, "%Y-%m-%d") if date else time.localtime(now)
    with suppress(ValueError, OverflowError):
        at = time.mktime((day.tm_year, day.tm_mon, day.tm_mday, hour, minute, 0, 0, 0, -1))
        return at if date or at <= now else at - DAY
    return None


def _bare(words: str) -> str:
    return " ".join(WORD.sub(" ", words).split()).strip("@").casefold()
