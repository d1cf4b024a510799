"""Suggest the name that was meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from catalogue import N_, LazyText, _, localized

OTHER_WORDS = {  # what people call it by, and its name
    "claude": "anthropic",
    "gpt": "openai",
    "chatgpt": "openai",
    "google": "gemini",
    "moonshot": "kimi",
    "dashscope": "qwen",
    "tongyi": "qwen",
    "bytedance": "doubao",
    "volcengine": "doubao",
}
DID_YOU_MEAN = N_("did you mean {name!r}?")


def closest_name(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most like this one; "" if none is."""
    names = {option.lower(): option for option in sorted(known)}
    if (other := OTHER_WORDS.get(re.split(r"[-_. ]", name.lower(), maxsplit=1)[0], "")) in names:
        return names[other]
    close = difflib.get_close_matches(name.lower(), names, 1, 0.6)
    return names[close[0]] if close else ""


def split_name(words: Sequence[str], known: Iterable[str]) -> tuple[str, list[str]]:
    """Return the name with which these words begin, in any case, and the words behind it.

    Without a known name, it is the first word.
    """
    names = {" ".join(option.casefold().split()): option for option in known}
    for count in range(len(words), 0, -1):
        if found := names.get(" ".join(words[:count]).casefold()):
            return found, [*words[count:]]
    return words[0], [*words[1:]]


def did_you_mean(name: str) -> str:
    """Return the question whether this name was meant."""
    return _(DID_YOU_MEAN, name=name)


def suggest(name: str, known: Iterable[str]) -> str:
    """Return "did you mean …?", or the list of what there is."""
    return localized(suggest_lazily(name, known))


def suggest_lazily(name: str, known: Iterable[str]) -> LazyText | str:
    """Return "did you mean …?", or the list of what there is, to be translated later."""
    names = sorted(known)
    if close := closest_name(name, names):
        return LazyText(DID_YOU_MEAN, name=close)
    return LazyText(N_("one of: {names}"), names=names) if 0 < len(names) <= 30 else ""
