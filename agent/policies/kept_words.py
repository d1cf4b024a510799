"""Keep through a summary what it must not lose: people's words, identifiers, paths, addresses and numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from agent.core.context import NO_ANSWER
from agent.memory.words import STOP_WORDS

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


ASKING_TOOL = "ask_clarification"  # its result is what a person answered
SAID_KEY = "said"  # of a summary: what it keeps of people
SAID_HEADER = "Said by people in the omitted messages, word for word:"
NAMED_HEADER = "Named by people before that:"
MAX_TEXT_CHARS, MAX_NAMED_CHARS = 4000, 12_000  # together, of messages kept word for word and of what others named
MAX_MESSAGE_CHARS = 2000  # the rest of a longer one was pasted
MAX_PART_CHARS = 300  # of one value
_CJK = r"\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff"
_HEADER = re.compile(r"\[\w{3} \d{4}-\d\d-\d\d [^\n\]]*\]")  # at the beginning: time and author
_PARTS = re.compile(rf"[\n.!?;:,](?=\s|[{_CJK}]|$)|[，。；：！？、]")
_QUOTED = re.compile(r"[\"'`“”„«»「」『』()\[\]]")


@dataclass(frozen=True, slots=True)
class SaidWords:
    """What people said, the oldest first: whole messages, and what the messages before them named."""

    texts: tuple[str, ...] = ()
    named: tuple[str, ...] = ()

    def dump(self) -> dict[str, list[str]]:
        """Return it as JSON."""
        return {"texts": list(self.texts), "named": list(self.named)}

    def format(self) -> str:
        """Return the text for the model, "" without any."""
        named = f"\n\n{NAMED_HEADER} {'; '.join(self.named)}" if self.named else ""
        return (f"\n\n{SAID_HEADER}\n" + "\n".join(self.texts) if self.texts else "") + named


def collect_said(old: Iterable[BaseMessage], stay: Iterable[BaseMessage], room: float = 1.0) -> SaidWords:
    """Return what people said and answered in old messages and earlier summaries, but not in those that `stay`.

    `room` is the share of the usual bounds that there is.
    """
    staying = {id(message) for message in stay}
    texts: list[str] = []
    named: list[str] = []
    for message in old:
        if isinstance(message, ToolMessage) and (answer := _answer_in(message)):
            texts.append(_without_paste(answer))
        if not isinstance(message, HumanMessage) or id(message) in staying:
            continue
        before = message.additional_kwargs.get(SAID_KEY)
        if isinstance(before, Mapping):
            texts += _strings(before.get("texts"))
            named += _strings(before.get("named"))
        elif not message.additional_kwargs.get("summary") and (text := message.text.strip()):
            texts.append(_without_paste(text))
    size = sum(map(len, texts))
    while texts and size > MAX_TEXT_CHARS * room:
        text = texts.pop(0)
        size -= len(text)
        named += named_values(text)
    return SaidWords(tuple(texts), _within(list(dict.fromkeys(named)), int(MAX_NAMED_CHARS * room)))


def _answer_in(result: ToolMessage) -> str:
    """Return what a person answered to a question of the agent; "" for the result of another tool."""
    answered = result.name == ASKING_TOOL and result.status != "error" and result.text != NO_ANSWER
    return result.text.strip() if answered else ""


def _strings(value: Any) -> list[str]:
    return [str(each) for each in value] if isinstance(value, Sequence) and not isinstance(value, str) else []


def _without_paste(text: str) -> str:
    if len(text) <= MAX_MESSAGE_CHARS:
        return text
    return f"{text[: MAX_MESSAGE_CHARS // 2]} […] {text[-MAX_MESSAGE_CHARS // 2 :]}"


def _within(named: list[str], max_chars: int) -> tuple[str, ...]:
    """Return what has room; names without digits or marks go first, then what is oldest."""
    size = sum(len(value) + 2 for value in named)
    for droppable in (str.isalpha, bool):
        for value in list(named):
            if size <= max_chars:
                return tuple(named)
            if droppable(value.replace(" ", "")):
                named.remove(value)
                size -= len(value) + 2
    return tuple(named)


def named_values(text: str) -> list[str]:
    """Return what a person's message names: names, numbers, paths, addresses and versions, with what belongs to them.

    In Chinese, Japanese and Korean, where words have no spaces and names no capitals, whole clauses stay.
    """
    found: list[str] = []
    for part in _PARTS.split(_without_header(text)):
        if re.search(f"[{_CJK}]", part):
            found.append(part.strip()[:MAX_PART_CHARS])
        else:
            found += _runs(part)
    return [value for value in dict.fromkeys(found) if value]


def _without_header(text: str) -> str:
    header = _HEADER.match(text)
    return text[header.end() :] if header else text


def _runs(part: str) -> Iterator[str]:
    """Yield each run of words that name something: "DE89 3704 0044", "Maria Schneider", "12 March"."""
    words = [_QUOTED.sub("", word).strip(",;!?.") for word in part.split()]
    for names, run in groupby(words, key=_names):
        value = " ".join(run)[:MAX_PART_CHARS]
        if names and value.lower() not in STOP_WORDS and len(value) > 1 - value.isdigit():
            yield value


def _names(word: str) -> bool:
    """Return whether a word names something: it has a capital, a digit or a mark inside."""
    return any(sign.isdigit() or sign.isupper() or sign in "_/@€$£¥%#" for sign in word) or bool(
        re.search(r"\w[.:+=\\-]\w", word)
    )
