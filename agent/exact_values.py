"""Find what a summary must not lose: identifiers, paths, addresses and numbers, word for word."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from langchain_core.messages import AIMessage, BaseMessage

SKILLS_FOLDER = "/mnt/skills/"
MAX_WORD_CHARS = 300  # longer words are not searched: the patterns look back
CONTEXT_WORDS = 3  # before a number, which means little alone
_VALUE = re.compile(
    r"https?://[^\s<>\"'`)\]}]+"
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    r"|[\w.~@+-]*/[\w.~@+-]+(?:/[\w.~@+-]*)*"  # a path
    r"|[\w-]+(?:\.[\w-]+)*\.[a-z][a-z0-9]{1,4}(?!\w)"  # a file name
    r"|[#$€£¥]?[A-Za-z0-9_.+-]*[0-9][A-Za-z0-9_.,:%/+-]*[%€£¥]?"  # a number, date, version, key
    r"|[A-Za-z][A-Za-z0-9]*_\w+"
    r"|[A-Za-z][a-z0-9]+[A-Z][a-z0-9]\w*|[A-Z]{2,}[a-z][a-z0-9]\w*"  # camelCase, HTTPServer
    r"|[A-Z]{2,}(?:-[A-Z0-9]+)+"
)
_SPACES = re.compile(r"[\s，。；：、！？（）「」“”]+")  # Chinese has no others
_NUMBER = re.compile(r"[^A-Za-z/@_]+")
_NOISE = re.compile(r"\d|<?/?(?:message|tool_call|conversation)>?")


def lost_values(messages: Iterable[BaseMessage], summary: str, max_chars: int) -> str:
    """Return the values of the messages that the summary lacks, a number with the words before it.

    If they exceed `max_chars`, the words are left out, then the oldest values, plain numbers first.
    """
    known = {value for value, _context in _values(summary)}
    found = {value: context for text in map(_full_text, messages) for value, context in _values(text)}
    lost = {value: found[value] for value in reversed(found) if value not in known}
    order = sorted(lost, key=_rank)
    in_context = "; ".join(lost[value] for value in order)
    return in_context if len(in_context) <= max_chars else _join_within(order, max_chars)


def _rank(value: str) -> int:
    if value.startswith(SKILLS_FOLDER):
        return 0
    return 2 if _NUMBER.fullmatch(value) else 1


def _join_within(values: Sequence[str], max_chars: int) -> str:
    kept, room = [], max_chars
    for value in values:
        room -= len(value) + 2
        if room < 0:
            break
        kept.append(value)
    return "; ".join(kept)


def _full_text(message: BaseMessage) -> str:
    calls = message.tool_calls if isinstance(message, AIMessage) else ()
    return "\n".join([message.text, *(text for call in calls for text in _texts_in(call["args"]))])


def _texts_in(value: object) -> Iterator[str]:
    """Yield all texts and numbers in arguments, however deep."""
    match value:
        case str() | int() | float():
            yield str(value)
        case dict():
            for each in value.values():
                yield from _texts_in(each)
        case list():
            for each in value:
                yield from _texts_in(each)


def _values(text: str) -> Iterator[tuple[str, str]]:
    """Yield each value with its context."""
    for line in text.splitlines():
        words = _SPACES.split(line)
        for place, word in enumerate(words):
            for found in _VALUE.finditer(word) if len(word) <= MAX_WORD_CHARS else ():
                value = found[0].rstrip(".,:;/-+") or found[0]
                if _NOISE.fullmatch(value):
                    continue
                before = words[max(0, place - CONTEXT_WORDS) : place] if _NUMBER.fullmatch(value) else []
                yield value, " ".join([*(each for each in before if len(each) <= 20), value])
