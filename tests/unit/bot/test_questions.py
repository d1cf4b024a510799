"""Which open question a message answers."""

from __future__ import annotations

import time

import pytest

from agent.blocks import Ask
from agent.messages import Author, Kind, Message, Thread
from bot.questions import bind

FORMAT = Ask("a", "Which format?")
DELETE = Ask("b", "Delete the old one?", ("Yes", "No"))
APPROVE = Ask("c", "Run it?", ("Approve", "Deny"), free_text=False)


def said(*texts: str) -> list[Message]:
    thread = Thread("telegram", "1", "42")
    return [Message(thread, f"k{n}", str(n), Author("42", "Jane"), text, time.time()) for n, text in enumerate(texts)]


def clicked(ask: Ask, option: str, key: str = "click") -> Message:
    thread = Thread("telegram", "1", "42")
    author = Author("42", "Jane")
    return Message(thread, key, "9", author, option, time.time(), Kind.CLICK, target=ask.id)


@pytest.mark.parametrize(
    ("asks", "texts", "answers"),
    [
        ([FORMAT], ["2: csv"], [("a", "2: csv")]),
        ([FORMAT, DELETE], ["csv"], [("a", "csv")]),
        ([FORMAT, DELETE], ["no"], [("b", "no")]),  # only one has that option
        ([DELETE, Ask("d", "Sure?", ("Yes", "No"))], ["no"], [("b", "no")]),
        ([FORMAT, DELETE], ["2: no"], [("b", "no")]),
        (
            [FORMAT, DELETE],
            ["2. no\n1. csv, please\nwith a header"],
            [("b", "no"), ("a", "csv, please\nwith a header")],
        ),
        (
            [FORMAT, DELETE],
            ["1. csv\n2. xlsx\n3. pdf"],
            [("a", "1. csv\n2. xlsx\n3. pdf")],
        ),  # a list is not a numbered answer
        ([FORMAT, DELETE], ["csv", "no", "and hurry"], [("a", "csv"), ("b", "no")]),
        ([FORMAT, DELETE], ["no", "csv"], [("b", "no"), ("a", "csv")]),
        ([APPROVE], ["approve"], [("c", "Approve")]),
        ([APPROVE], ["2"], [("c", "Deny")]),
        ([APPROVE, FORMAT], ["csv"], [("a", "csv")]),
        ([APPROVE, FORMAT], ["1: deny"], [("c", "Deny")]),
        ([Ask("e", "How many?", ("5", "10"))], ["2"], [("e", "2")]),
    ],
)
def test_a_text_answers_the_matching_question(
    asks: list[Ask], texts: list[str], answers: list[tuple[str, str]]
) -> None:
    bound = bind(asks, said(*texts))
    assert [(answer.id, answer.text) for answer in bound.answers] == answers
    assert not bound.refused


@pytest.mark.parametrize(
    ("asks", "text"), [([APPROVE], "rather not"), ([FORMAT, APPROVE], "2: rather not"), ([APPROVE], "3")]
)
def test_a_question_without_free_text_rejects_text_and_stays_open(asks: list[Ask], text: str) -> None:
    bound = bind(asks, said(text))
    [(message, _)] = bound.refused
    assert message.text == text
    assert not bound.answers


def test_the_refusal_names_the_choices_of_its_question() -> None:
    [(_, words)] = bind([FORMAT, APPROVE], said("2: rather not")).refused
    assert "**Approve**, **Deny**" in words


def test_each_question_is_answered_once_by_the_first_answer() -> None:
    texts = said("csv", "by the way")
    bound = bind([FORMAT, DELETE], [clicked(DELETE, "Yes"), texts[0], clicked(DELETE, "No", "late"), texts[1]])
    assert [(answer.id, answer.text) for answer in bound.answers] == [("b", "Yes"), ("a", "csv")]
    assert bound.rest == ["k1"]


def test_without_an_open_question_messages_are_messages() -> None:
    bound = bind([], [clicked(DELETE, "Yes"), *said("hello")])
    assert (bound.answers, bound.rest) == ([], ["k0"])
