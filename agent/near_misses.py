"""Suggest the name that was meant. Imports nothing of ours."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggest(name: str, known: Iterable[str]) -> str:
    """Return "did you mean …?", or the list of what there is."""
    names = {option.lower(): option for option in sorted(known)}
    close = difflib.get_close_matches(name.lower(), names, 1, 0.6)
    if close:
        return f"did you mean {names[close[0]]!r}?"
    return f"one of: {', '.join(names.values())}" if names and len(names) <= 30 else ""
