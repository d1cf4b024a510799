"""Compare the pattern of a rule with a text, also with a text of which parts are known only when it runs.

Marks in the words of a command for what is known only when it runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate
from functools import lru_cache
from typing import NamedTuple

VALUE = "\ue000"  # any text without a blank: an expansion in quotes
TEXT = "\ue001"  # any text, also several words or none: an expansion without quotes, a glob, braces
MARKS = re.compile(f"[{VALUE}{TEXT}]")


def name_set(names: str) -> frozenset[str]:
    """Return the names of a text with blanks between them."""
    return frozenset(names.split())


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> Callable[[str], object]:
    """Return what compares a pattern with a text. `*` matches any text; `git *` also matches `git`."""
    compare = re.compile(_to_regex(pattern)).match
    if not pattern.endswith(" *"):
        return compare
    return lambda text: text == pattern[:-2] or compare(text)


@lru_cache(maxsize=4096)
def compile_part(pattern: str) -> Callable[[str], object]:
    """Return what looks for a pattern in a text, as a word of its own. Options may come before the rest."""
    first, blank, rest = pattern.removesuffix(" *").partition(" ")
    between = f" (?:{'' if rest.startswith('-') else '-'}[^\n;&|]{{0,80}} )?"
    found = _to_regex(first)[4:-3] + (between + _to_regex(rest)[4:-3] if blank else "")  # without `(?s:` and `)\Z`
    return re.compile(rf"(?s)(?<![\w-]){found}").search


def _to_regex(pattern: str) -> str:
    return translate(pattern.replace("[", "[[]"))


class _Automaton(NamedTuple):
    """A pattern as bits: those of its characters, of `*`, of what a text without a blank may pass, and of its end."""

    steps: dict[str, int]
    any: int
    star: int
    unspaced: int
    end: int


@lru_cache(maxsize=1024)
def _automaton(pattern: str) -> _Automaton:
    pattern = re.sub(r"\*+", "*", pattern)
    steps: dict[str, int] = {}
    any_, star, unspaced = 0, 0, 0
    for index, char in enumerate(pattern):
        bit = 1 << index
        if char == "*":
            star |= bit
        elif char == "?":
            any_ |= bit
        else:
            steps[char] = steps.get(char, 0) | bit
        unspaced |= bit if char != " " else 0
    return _Automaton(steps, any_, star, unspaced, 1 << len(pattern))


def could_match(pattern: str, text: str) -> bool:
    """Return whether a pattern matches a text for any value of its marks. Linear in the text."""
    known, literal = MARKS.split(text, maxsplit=1)[0], re.split(r"[*?]", pattern.removesuffix(" *"), maxsplit=1)[0]
    if not known.startswith(literal[: len(known)]):
        return False
    return _could_match(pattern, text) or (pattern.endswith(" *") and _could_match(pattern[:-2], text))


def _could_match(pattern: str, text: str) -> bool:
    steps, any_, star, unspaced, end = _automaton(pattern)
    states = 1 | ((1 & star) << 1)
    for char in text:
        if char == TEXT:
            states = (end << 1) - (states & -states)  # all from the lowest on
        elif char == VALUE:
            before = 0
            while before != states:
                before, states = states, states | ((states & unspaced) << 1)
        else:
            states = ((states & (steps.get(char, 0) | any_)) << 1) | (states & star)
            states |= (states & star) << 1
        if not states:
            return False
    return bool(states & end)
