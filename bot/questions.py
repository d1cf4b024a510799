"""Bind messages to the open questions they answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from agent.blocks import Ask
from agent.context import Answer
from agent.messages import Kind, Message

REFUSED = (
    "This question can only be answered with one of: {options}. Press a button, or send me one of these words."
    " I have not read your message; send it again after that."
)
_NUMBERED = re.compile(r"(?m)^[ \t]*(\d{1,2})[ \t]*[:.)]")


@dataclass(slots=True)
class Bound:
    """Answers; messages that the open question refuses, with the notice; keys of messages without an open question.

    Clicks on closed questions are dropped.
    """

    answers: list[Answer] = field(default_factory=list)
    refused: list[tuple[Message, str]] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)


def bind(asks: Sequence[Ask], messages: Iterable[Message]) -> Bound:
    """Bind the messages to the open questions `asks`, in order."""
    bound, unanswered = Bound(), {ask.id: ask for ask in asks}
    for message in messages:
        if message.kind is Kind.CLICK:
            said = [(unanswered[message.target], message.text)] if message.target in unanswered else []
        elif not unanswered:
            said = []
            bound.rest.append(message.key)
        else:
            meant = _meant(asks, unanswered, message.text)
            said = [(ask, given) for ask, words in meant if (given := _given(ask, words)) is not None]
            if len(said) < len(meant):
                refusing = next(ask for ask, words in meant if _given(ask, words) is None)
                options = ", ".join(f"**{option}**" for option in refusing.options)
                bound.refused.append((message, REFUSED.format(options=options)))
                said = []
        for ask, text in said:
            bound.answers.append(Answer(ask.id, text, message.key))
            del unanswered[ask.id]
    return bound


def _meant(asks: Sequence[Ask], unanswered: dict[str, Ask], text: str) -> list[tuple[Ask, str]]:
    """Return the questions that a text answers: those it numbers, the only one with such an option, the first that
    accepts it, else the first."""
    numbered = _numbered(asks, text) if len(asks) > 1 else []
    if numbered and all(ask.id in unanswered for ask, _ in numbered):
        return numbered
    named = [ask for ask in unanswered.values() if text.strip().casefold() in map(str.casefold, ask.options)]
    taking = [ask for ask in unanswered.values() if _given(ask, text) is not None]
    return [((named if len(named) == 1 else taking or [*unanswered.values()])[0], text)]


def _numbered(asks: Sequence[Ask], text: str) -> list[tuple[Ask, str]]:
    """Split numbered answers, such as "2: yes", one a line. Empty when the text is anything else."""
    before, *parts = _NUMBERED.split(text)
    numbers = [int(number) for number in parts[::2]]
    if before.strip() or len({*numbers}) < len(numbers) or not all(1 <= number <= len(asks) for number in numbers):
        return []
    return [(asks[number - 1], words.strip()) for number, words in zip(numbers, parts[1::2], strict=True)]


def _given(ask: Ask, text: str) -> str | None:
    """Return the answer that `text` gives to a question; None when the question does not accept it."""
    return text if ask.free_text or not ask.options else ask.match_option(text)
