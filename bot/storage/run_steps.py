"""Store the steps of a turn in progress: its transcript is stored when it ends, which a dead process does not see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bot.database.database import Execute
from bot.database.rows import insert_rows
from bot.database.states import EntryKind
from bot.storage.transcripts import TranscriptEntry

_SHOWN = ("parent", "text", "step_title", "state", "at", "seconds")


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
        "SELECT item, parent, text, step_title, state, at, seconds FROM run_steps WHERE conversation=:conversation"
        " ORDER BY at, item"
    )
    empty = TranscriptEntry("", EntryKind.STEP, "", 0.0)
    return [replace(empty, **dict(row)) for row in execute(sql, {"conversation": conversation})]


def forget_steps(execute: Execute, conversation: str) -> None:
    """Delete the steps of a conversation, whose turn has ended."""
    execute("DELETE FROM run_steps WHERE conversation=:conversation", {"conversation": conversation})
