"""Marks in the words of a command for what is known only when it runs."""

from __future__ import annotations

import re

VALUE = "\ue000"  # any text without a blank: an expansion in quotes
TEXT = "\ue001"  # any text, also several words or none: an expansion without quotes, a glob, braces
MARKS = re.compile(f"[{VALUE}{TEXT}]")


def name_set(names: str) -> frozenset[str]:
    """Return the names of a text with blanks between them."""
    return frozenset(names.split())
