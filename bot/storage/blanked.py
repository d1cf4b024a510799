"""Blank the messages of a person who is forgotten. Which of them still count for a rate limit is kept as digests until
the longest window is over: forgetting must not be a way around limits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.messages import Kind, Message
from agent.stored_json import Damaged
from bot.database.database import Execute
from bot.database.states import InboxState
from bot.storage.inbox import IGNORED_KIND
from bot.storage.uses import FORGOTTEN, OF_FORGOTTEN, RATE_LIMIT, forgotten_name

COLUMNS = "id, key, kind, author, payload, bundle, received, error"  # that blanking needs
PIECE_SECONDS = 5.0  # pieces of a bundle follow each other so fast, and count once
_BLANK = (
    f"UPDATE inbox SET kind='{IGNORED_KIND}', conversation='', author=:author, payload='', bundle=:chat, run=NULL,"
    f" state={InboxState.WITHDRAWN}, error='{FORGOTTEN}' WHERE id=:id"
)


@dataclass(frozen=True, slots=True)
class StillCounted:
    """Which messages still count for a rate limit: those after `since`; of commands, those that begin work."""

    since: float
    begins_work: Callable[[Message], bool]


def blank_messages(execute: Execute, chosen: str, values: Mapping[str, Any], counted: StillCounted) -> int:
    """Blank the rows of the inbox that the statement `chosen` selects, with these COLUMNS; return how many."""
    rows = sorted(execute(chosen, values), key=lambda row: float(row["received"]))
    counting = _counting_chats(rows, counted)
    for row in rows:
        chat = counting.get(int(row["id"]))
        author = forgotten_name(row["author"]) if chat else ""
        execute(_BLANK, {"id": row["id"], "author": author, "chat": forgotten_name(chat) if chat else ""})
    return len(rows)


def _counting_chats(rows: Sequence[Any], counted: StillCounted) -> dict[int, str]:
    """Return row → chat of the messages that count, in the order of their arrival."""
    found: dict[int, str] = {}
    pieces: dict[str, float] = {}
    for row in rows:
        channel, received = str(row["author"]).partition(":")[0], float(row["received"])
        made_by_person = str(row["key"]).startswith(channel) and row["kind"] in (Kind.CHAT, Kind.COMMAND)
        if received <= counted.since or not made_by_person or row["error"] == RATE_LIMIT:
            continue
        if row["bundle"]:
            last, pieces[row["bundle"]] = pieces.get(row["bundle"], 0.0), received
            if received - last <= PIECE_SECONDS:
                continue
        try:
            message = Message.load(row["payload"])
        except Damaged:
            continue
        if message.kind is Kind.CHAT or counted.begins_work(message):
            found[int(row["id"])] = str(message.thread.without_topic)
    return found


def end_counts(execute: Execute, before: float) -> int:
    """Drop the digests of messages that count no more; return how many."""
    sql = f"UPDATE inbox SET author='', bundle='' WHERE {OF_FORGOTTEN} AND received<=:before RETURNING 1"
    return len(execute(sql, {"before": before}))
