"""Show the characters that a reader cannot see. Imports nothing heavy."""

from __future__ import annotations


def show_invisible(text: str, visible: str = "\n") -> str:
    """Return the text with an escape for each character that a reader cannot see, but those in `visible`."""
    return "".join(each if each.isprintable() or each in visible else f"\\u{ord(each):04x}" for each in text)
