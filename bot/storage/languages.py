"""The languages that people chose with /language: for themselves on a channel, and for a chat."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from agent.messages import Author, Thread
from bot.database.database import Execute
from bot.database.rows import insert_row
from catalogue import default_language, use_language

CHAT = ""  # in place of a person: the choice of a chat


def choose_language(execute: Execute, thread: Thread, person: str, language: str) -> None:
    """Store the language of a person on this channel, or of this chat where the person is CHAT; "" for none."""
    values = {"reader": reader_key(thread, person), "language": language}
    insert_row(execute, "languages", "reader", values, update=("language",))


def read_chosen(execute: Execute) -> dict[str, str]:
    """Return the choices by the key of their reader."""
    return {str(row["reader"]): str(row["language"]) for row in execute("SELECT * FROM languages", {})}


class ChosenLanguages:
    """A copy of the choices in memory, for what a channel says when the database cannot be used."""

    def __init__(self) -> None:
        self._chosen: dict[str, str] = {}

    def replace(self, chosen: dict[str, str]) -> None:
        """Take over what `read_chosen` has read."""
        self._chosen = chosen

    def note(self, thread: Thread, person: str, language: str) -> None:
        """Note a choice that was stored."""
        self._chosen[reader_key(thread, person)] = language

    def move(self, old: Thread, new: Thread) -> None:
        """Note that a chat has another address."""
        if language := self._chosen.pop(reader_key(old, CHAT), ""):
            self._chosen[reader_key(new, CHAT)] = language

    def find(self, thread: Thread, person: str) -> str:
        """Return the language that the person chose, or else the chat; "" for none."""
        chosen = person and self._chosen.get(reader_key(thread, person))
        return chosen or self._chosen.get(reader_key(thread, CHAT), "")


def language_of(execute: Execute, thread: Thread, author: Author) -> str:
    """Return the language to use: chosen by the person, by the chat, configured, reported by the platform, English."""
    readers = {"person": reader_key(thread, author.id), "chat": reader_key(thread, CHAT)}
    rows = execute("SELECT reader, language FROM languages WHERE reader IN (:person, :chat)", readers)
    chosen = {str(row["reader"]): str(row["language"]) for row in rows}
    found = (author.id and chosen.get(readers["person"])) or chosen.get(readers["chat"])
    return found or default_language(author.language)


@contextmanager
def speak_to(execute: Execute, thread: Thread, author: Author) -> Iterator[None]:
    """Use the language of a person in this chat for a block of code."""
    with use_language(language_of(execute, thread, author)):
        yield


def reader_key(thread: Thread, person: str) -> str:
    """Return the key of a person or chat. A workspace is never empty, so a person is never taken for a chat."""
    return str(Thread(thread.channel, "", person) if person else Thread(thread.channel, thread.workspace, thread.chat))
