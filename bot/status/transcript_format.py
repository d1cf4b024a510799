"""Render the entries of a transcript as Markdown or as JSON lines."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import orjson

from bot.database.states import EntryKind


def render_entry(entry: Mapping[str, Any], form: str) -> str:
    """Return an entry as one line of JSON (`form` jsonl), or as a paragraph of Markdown."""
    if form == "jsonl":
        return orjson.dumps(entry).decode() + "\n"
    text, who = entry["text"], entry["name"] or "Fawn"
    match entry["kind"]:
        case EntryKind.STEP:
            seconds = "" if entry["seconds"] is None else f", {entry['seconds']:.1f} s"
            indent = "  " if entry["parent"] else ""  # of a sub-agent
            shown = step_words(text, entry["step_title"])
            return f"{indent}- {shown} ({entry['state']}{seconds})\n\n"
        case EntryKind.FILE:
            return f"- File of {who}: {text}\n\n"
        case EntryKind.FEEDBACK:
            return f"- {text} {who}\n\n"
        case EntryKind.NOTICE:
            return f"_{text}_\n\n"
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry["at"]))
    return f"**{who}** · {when}\n\n{text}\n\n"


def step_words(text: str, title: str) -> str:
    """Return the raw call of a step; before the kind of a task, and a call without arguments, what it does in words."""
    return text if ":" in text or title in ("", text) else f"{title} — {text}"
