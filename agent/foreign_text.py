"""Words of strangers' servers and people, made safe to print on a terminal and to log."""

from __future__ import annotations

from agent.permissions.invisible import is_seen

MAX_LINE_CHARS = 300


def printable_text(text: str) -> str:
    """Return the text without what a reader cannot see; its lines stay."""
    return "".join(char for char in text if char == "\n" or is_seen(char))


def printable_line(text: object, limit: int = MAX_LINE_CHARS) -> str:
    """Return the text as one printable line of at most `limit` characters."""
    head = str(text)[: limit * 4]  # what follows would not fit, and may be long
    line = " ".join("".join(char if is_seen(char) else " " for char in head).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
