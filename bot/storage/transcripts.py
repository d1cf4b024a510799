"""Transcripts: what people and the agent said and did in each run, for search and export.

Store the steps of a turn in progress: its transcript is stored when it ends, which a dead process does not see.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from typing import Any

from agent.messages import Thread
from bot.database.database import Execute
from bot.database.dialect import FROM_THE_LEFT, LIKE
from bot.database.rows import MAX_ROW, insert_row, insert_rows, read_rows
from bot.database.states import EntryKind
from bot.storage.conversations import ConversationRow, current_conversation
from bot.storage.outcomes import feedback_of_run
from bot.storage.runs import RUNS_OF_REQUEST

MAX_WORDS = 5
RECENT_ENTRIES = 2000  # in which names of people are looked for
_POST = "post:"  # begins the item of a notice on the channel `web`
_WILDCARD, _ESCAPED = re.compile(r"([\\%_])"), r"\\\1"
_KINDS = ", ".join(f"'{kind}'" for kind in EntryKind if kind not in (EntryKind.STEP, EntryKind.NOTICE))
_STEPS = f"FROM transcript WHERE conversation=:conversation AND kind='{EntryKind.STEP}'"
_WORD = "(" + " OR ".join(rf"{{1}} {LIKE} :word{{0}}{case} ESCAPE '\'" for case in "abc") + ")"
_WORDS, _TITLE_WORDS = (
    " AND ".join(_WORD.format(number, column) for number in range(MAX_WORDS)) for column in ("t.text", "c.title")
)
_SEARCH = (
    "SELECT t.*, c.title FROM conversations c JOIN transcript t ON t.conversation=c.key"
    f" WHERE c.thread>=:first AND c.thread<=:last AND t.kind IN ({_KINDS}) AND t.id<:before"
    f" AND {_WORDS} ORDER BY t.id DESC LIMIT :limit"
)
_TITLES = (
    "SELECT c.* FROM addresses a JOIN conversations c ON c.key=a.conversation WHERE a.thread>=:first"
    f" AND a.thread<=:last AND c.title<>'' AND {_TITLE_WORDS} ORDER BY c.used DESC LIMIT :limit"
)


@dataclass(frozen=True, slots=True)
class TranscriptEntry:
    """One entry. `item` identifies it within its conversation; `at` is a unix time.

    `author` and `name` are empty for entries of the agent. `state` and `seconds` belong to steps; `seconds` is None for
    a step that did not end, or whose beginning was lost in a crash. `parent` is the id of the step that began a step of
    a sub-agent. `text` of a step is its raw call, of a task the kind of its sub-agent, `step_title` says in words
    what it does, and `output` what it returned.
    """

    item: str
    kind: EntryKind
    text: str
    at: float
    author: str = ""
    name: str = ""
    state: str = ""
    seconds: float | None = None
    parent: str = ""
    step_title: str = ""
    output: str = ""


@dataclass(frozen=True, slots=True)
class StoredEntry(TranscriptEntry):
    """A stored entry, with its run (0: none) and conversation."""

    id: int = 0
    run: int = 0
    conversation: str = ""
    title: str = ""
    thread: str = ""
    asks: str = ""  # JSON of the questions with buttons that it shows, of a notice on the channel `web`


_MADE_UP = ("message:task:", "message:sched:", "message:expired:")  # once stored under the name of a person
IS_MADE_UP = "(" + " OR ".join(f"substr(item, 1, {len(each)})='{each}'" for each in _MADE_UP) + ")"


def with_true_author(entry: StoredEntry) -> StoredEntry:
    """Return an entry whose words are the agent's, but which was once stored under a person's name, as the agent's."""
    return replace(entry, author="", name="") if entry.item.startswith(_MADE_UP) else entry


def add_entries(execute: Execute, conversation: str, run: int, entries: Iterable[TranscriptEntry]) -> None:
    """Store the entries of a run. Of an entry that an earlier run of the conversation stored, update the end."""
    rows = [{"conversation": conversation, "run": run, **asdict(entry)} for entry in entries]
    insert_rows(execute, "transcript", "conversation, item", rows, update=("state", "output"))


def search_titles(execute: Execute, thread: Thread, words: Sequence[str], limit: int) -> list[ConversationRow]:
    """Return the current conversations of a thread's chat whose titles contain all words, the latest first."""
    first = f"{str(thread).rpartition('/')[0]}/"
    values = {"first": first, "last": f"{first}~", "limit": limit, **_patterns(words)}
    return read_rows(execute, ConversationRow, _TITLES, **values)


def search_chat(
    execute: Execute, thread: Thread, words: Sequence[str], limit: int, *, topics: bool, before: int = MAX_ROW
) -> list[StoredEntry]:
    """Return the entries of a thread that contain all words, newest first; with `topics`, of its whole chat.

    Only those before the number `before` are returned.

    Words beyond MAX_WORDS are ignored. Parts of words count, so that scripts without spaces can be searched.
    """
    first = f"{str(thread).rpartition('/')[0]}/" if topics else str(thread)
    last = f"{first}~" if topics else first  # an address is ASCII, and its parts are quoted
    values = {"first": first, "last": last, "limit": limit, "before": before, **_patterns(words)}
    return [*map(with_true_author, read_rows(execute, StoredEntry, _SEARCH, **values))]


def _patterns(words: Sequence[str]) -> dict[str, Any]:
    """Return the values of _WORDS. Those of words that are not there fit everything."""
    values: dict[str, Any] = {}
    for number in range(MAX_WORDS):
        word = words[number] if number < len(words) else ""
        cases = [word] if word.isascii() else [word.lower(), word.upper(), word.capitalize()]
        patterns = [f"%{re.sub(_WILDCARD, _ESCAPED, case)}%" for case in cases]
        values |= {f"word{number}{name}": pattern for name, pattern in zip_longest("abc", patterns)}
    return values


def recent_names(execute: Execute, channel: str) -> dict[str, str]:
    """Return id → name of the people who wrote last on a channel."""
    sql = (
        "SELECT author, name FROM (SELECT author, name, conversation FROM transcript ORDER BY id DESC LIMIT :most) t"
        " WHERE author<>'' AND name<>'' AND substr(conversation, 1, length(:beginning))=:beginning"
    )
    rows = execute(sql, {"most": RECENT_ENTRIES, "beginning": f"{channel}/"})
    return {str(row["author"]): str(row["name"]) for row in reversed(rows)}


def recent_authors(execute: Execute, channel: str) -> list[tuple[str, str, str]]:
    """Return the chat, the id and the name of those who wrote last on a channel, the latest first."""
    sql = (
        "SELECT t.author, t.name, c.thread FROM (SELECT author, name, conversation FROM transcript WHERE author<>''"
        " ORDER BY id DESC LIMIT :most) t JOIN conversations c ON c.key=t.conversation"
        " WHERE substr(c.thread, 1, length(:beginning))=:beginning"
    )
    rows = execute(sql, {"most": RECENT_ENTRIES, "beginning": f"{channel}/"})
    found = ((str(Thread.parse(row["thread"]).without_topic), row["author"], row["name"]) for row in rows)
    return list(dict.fromkeys((chat, str(author), str(name)) for chat, author, name in found))


def read_thread(execute: Execute, thread: str, after: int, limit: int) -> list[StoredEntry]:
    """Return the entries of a thread in the order in which they were stored, from the first id over `after` on."""
    sql = (
        "SELECT t.*, c.title, c.thread FROM transcript t JOIN conversations c ON c.key=t.conversation"
        " WHERE c.thread=:thread AND t.id>:after ORDER BY t.id LIMIT :limit"
    )
    return [*map(with_true_author, read_rows(execute, StoredEntry, sql, thread=thread, after=after, limit=limit))]


def read_chat(execute: Execute, chat: Thread, after: int, limit: int) -> list[StoredEntry]:
    """Return the entries of all threads of a chat, as `read_thread` does of one."""
    first = str(chat.without_topic)
    sql = (
        f"SELECT t.*, c.title, c.thread FROM transcript t {FROM_THE_LEFT} conversations c ON c.key=t.conversation"
        " WHERE t.id>:after AND c.thread>=:first AND c.thread<:first || '~' ORDER BY t.id LIMIT :limit"
    )
    return [*map(with_true_author, read_rows(execute, StoredEntry, sql, first=first, after=after, limit=limit))]


def read_run(execute: Execute, conversation: str, run: int) -> list[StoredEntry]:
    """Return the entries of a run, in their order."""
    sql = "SELECT * FROM transcript WHERE conversation=:conversation AND run=:run ORDER BY id"
    return [*map(with_true_author, read_rows(execute, StoredEntry, sql, conversation=conversation, run=run))]


def latest_of_conversation(execute: Execute, conversation: str, limit: int) -> list[StoredEntry]:
    """Return the latest entries of a conversation, in their order."""
    sql = "SELECT * FROM transcript WHERE conversation=:conversation ORDER BY id DESC LIMIT :limit"
    rows = read_rows(execute, StoredEntry, sql, conversation=conversation, limit=limit)
    return [*map(with_true_author, reversed(rows))]


def latest_entry(execute: Execute) -> int:
    """Return the id of the latest entry of all."""
    return int(execute("SELECT max(id) AS id FROM transcript", {})[0]["id"] or 0)


def post_notice(execute: Execute, thread: Thread, key: str, text: str, asks: str, now: float) -> None:
    """Store what the bot itself posts on the channel `web`, or shows from now on. `asks` is JSON, or empty."""
    item = f"{_POST}{key}"
    sql = (
        "UPDATE transcript SET text=:text, asks=:asks WHERE item=:item AND conversation IN"
        " (SELECT key FROM conversations WHERE thread=:thread) RETURNING id"
    )
    if not execute(sql, {"text": text, "asks": asks, "item": item, "thread": str(thread)}):
        entry = TranscriptEntry(item, EntryKind.NOTICE, text, now)
        conversation = current_conversation(execute, thread, now)
        values = {"conversation": conversation, "run": 0, **asdict(entry), "asks": asks}
        insert_row(execute, "transcript", "conversation, item", values)


def post_file(execute: Execute, thread: Thread, key: str, number: int, text: str, now: float) -> None:
    """Store that the bot itself sent a file on the channel `web`."""
    entry = TranscriptEntry(f"file:{key}:{number}", EntryKind.FILE, text, now)
    values = {"conversation": current_conversation(execute, thread, now), "run": 0, **asdict(entry)}
    insert_row(execute, "transcript", "conversation, item", values)


def notices_with_buttons(execute: Execute, thread: Thread) -> list[StoredEntry]:
    """Return the notices on the channel `web` that show buttons."""
    sql = (
        "SELECT t.*, c.title, c.thread FROM transcript t JOIN conversations c ON c.key=t.conversation"
        " WHERE c.thread=:thread AND t.asks<>'' ORDER BY t.id"
    )
    return read_rows(execute, StoredEntry, sql, thread=str(thread))


def latest_of_thread(execute: Execute, thread: str, before: int, limit: int) -> list[StoredEntry]:
    """Return the latest entries of a thread with an id below `before`, in the order in which they were stored."""
    keys = [
        str(row["key"]) for row in execute("SELECT key FROM conversations WHERE thread=:thread", {"thread": thread})
    ]
    sql = (
        "SELECT t.*, '' AS title FROM transcript t WHERE t.conversation=:conversation AND t.id<:before"
        " ORDER BY t.id DESC LIMIT :limit"
    )
    found: list[StoredEntry] = []
    for key in keys:
        found += read_rows(execute, StoredEntry, sql, conversation=key, before=before, limit=limit)
    return [*map(with_true_author, sorted(found, key=lambda entry: entry.id)[-limit:])]


def notices_of_chat(execute: Execute, chat: Thread) -> list[StoredEntry]:
    """Return the notices that show buttons in all threads of a chat of the channel `web`."""
    sql = (
        "SELECT t.*, c.title, c.thread FROM conversations c JOIN transcript t ON t.conversation=c.key AND t.asks<>''"
        " WHERE c.thread>=:first AND c.thread<:first || '~' ORDER BY t.id"
    )
    return read_rows(execute, StoredEntry, sql, first=str(chat.without_topic))


def said_by(execute: Execute, conversation: str, person: str, limit: int) -> list[StoredEntry]:
    """Return the latest messages of a person in a conversation, the newest first."""
    sql = (
        f"SELECT * FROM transcript WHERE conversation=:conversation AND author=:person AND kind='{EntryKind.MESSAGE}'"
        f" AND NOT {IS_MADE_UP} ORDER BY id DESC LIMIT :limit"
    )
    return read_rows(execute, StoredEntry, sql, conversation=conversation, person=person, limit=limit)


def latest_steps(execute: Execute, conversation: str) -> list[StoredEntry]:
    """Return the steps of the latest request of a conversation that has some, in their order."""
    run = execute(f"SELECT max(run) AS run {_STEPS}", {"conversation": conversation})[0]["run"]
    sql = f"SELECT * {_STEPS} AND run IN ({RUNS_OF_REQUEST}) ORDER BY id"
    return read_rows(execute, StoredEntry, sql, conversation=conversation, run=run or 0)


def delivered_files(execute: Execute, conversation: str, run: int) -> list[str]:
    """Return the names of the files that a run delivered."""
    sql = (
        f"SELECT text FROM transcript WHERE conversation=:conversation AND run=:run AND kind='{EntryKind.FILE}'"
        " AND author='' ORDER BY id"
    )
    return [str(row["text"]) for row in execute(sql, {"conversation": conversation, "run": run})]


def answer_of_run(execute: Execute, conversation: str, run: int) -> str:
    """Return the last text of the agent in a run; "" for none."""
    sql = (
        f"SELECT text FROM transcript WHERE conversation=:conversation AND run=:run AND kind='{EntryKind.TEXT}'"
        " ORDER BY id DESC LIMIT 1"
    )
    rows = execute(sql, {"conversation": conversation, "run": run})
    return str(rows[0]["text"]) if rows else ""


def with_feedback(execute: Execute, entries: Sequence[StoredEntry]) -> list[StoredEntry]:
    """Add what people think of each run behind the last entry of the run, under the same id."""
    last = {entry.run: entry for entry in entries}
    more = "SELECT 1 FROM transcript WHERE conversation=:conversation AND run=:run AND id>:id LIMIT 1"
    found = []
    for entry in entries:
        found.append(entry)
        if entry is not last[entry.run] or execute(more, asdict(entry)):
            continue
        for row in feedback_of_run(execute, entry.run):
            mark = replace(
                entry, item=f"feedback:{row.run}:{row.person}", kind=EntryKind.FEEDBACK, state="", seconds=None
            )
            text = "👍" if row.value > 0 else "👎"
            found.append(replace(mark, text=text, author=row.person, name=row.name, at=row.at))
    return found


_SHOWN = ("parent", "text", "step_title", "state", "output", "at", "seconds")


def save_steps(execute: Execute, conversation: str, entries: Sequence[TranscriptEntry]) -> None:
    """Store what steps are now."""
    rows = [
        {"conversation": conversation, "item": each.item, **{name: getattr(each, name) for name in _SHOWN}}
        for each in entries
    ]
    insert_rows(execute, "run_steps", "conversation, item", rows, update=_SHOWN)


def read_steps(execute: Execute, conversation: str) -> list[TranscriptEntry]:
    """Return the steps of the turn in progress, or of the one that waits for an answer, in the order of their begin."""
    sql = (
        "SELECT item, parent, text, step_title, state, output, at, seconds FROM run_steps"
        " WHERE conversation=:conversation ORDER BY at, item"
    )
    empty = TranscriptEntry("", EntryKind.STEP, "", 0.0)
    return [replace(empty, **dict(row)) for row in execute(sql, {"conversation": conversation})]


def forget_steps(execute: Execute, conversation: str) -> None:
    """Delete the steps of a conversation, whose turn has ended."""
    execute("DELETE FROM run_steps WHERE conversation=:conversation", {"conversation": conversation})
