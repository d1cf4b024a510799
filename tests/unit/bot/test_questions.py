"""Which open question a message answers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest

from agent.blocks import Ask
from agent.messages import Author, Kind, Message, Origin, Thread
from bot.database.states import QuestionKind, QuestionState
from bot.journey import questions
from bot.journey.questions import Answered, Binding, Effect, Refused
from bot.storage.questions import QuestionRow

FORMAT = Ask("a", "Which format?")
DELETE = Ask("b", "Delete the old one?", ("Yes", "No"))
APPROVE = Ask("c", "Run it?", ("Approve", "Deny"), free_text=False)
SURE = Ask("d", "Really?", ("Yes", "No"))
TWICE = Ask("f", "Run that?", ("Approve", "Deny"), free_text=False)


def bind(
    asks: Sequence[Ask], messages: Iterable[Message], replies: Mapping[str, str] | None = None
) -> dict[str, Binding]:
    """Bind messages to open questions; those without free text may only be answered by person 42."""
    rows = [
        QuestionRow(
            "c", ask.id, 1, number if len(asks) > 1 else 0, QuestionKind.ASK, ask.question, ask.options,
            int(ask.free_text), "" if ask.free_text else "41 42", QuestionState.OPEN, 0.0, None, "", "",
        )
        for number, ask in enumerate(asks, 1)
    ]  # fmt: skip
    return questions.bind(
        rows, messages, replies or {}, lambda row, message, _answer: message.author.id in (row.who or "42 7")
    )


def given(bindings: Mapping[str, Binding]) -> list[tuple[str, str]]:
    answers = [each.given for each in bindings.values() if isinstance(each, Answered)]
    return [(question.id, text) for some in answers for question, text in some]


def refused(bindings: Mapping[str, Binding]) -> dict[str, Refused]:
    return {key: each for key, each in bindings.items() if isinstance(each, Refused)}


def said(*texts: str) -> list[Message]:
    thread = Thread("telegram", "1", "42")
    return [
        Message(thread, f"k{n}", str(n), Author("42", "Jane"), text, time.time(), origin=Origin.PERSON)
        for n, text in enumerate(texts)
    ]


def clicked(ask: Ask, option: str, key: str = "click") -> Message:
    thread = Thread("telegram", "1", "42")
    author = Author("42", "Jane")
    return Message(thread, key, "9", author, option, time.time(), Kind.CLICK, target=ask.id, origin=Origin.PERSON)


@pytest.mark.parametrize(
    ("asks", "texts", "answers"),
    [
        ([FORMAT], ["2: csv"], [("a", "2: csv")]),
        ([FORMAT, DELETE], ["csv"], [("a", "csv")]),
        ([FORMAT, DELETE], ["no"], [("b", "no")]),  # only one has that option
        ([DELETE, SURE], ["no"], [("b", "no")]),
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
        ([FORMAT, APPROVE], ["yes please"], [("a", "yes please")]),
        ([APPROVE, TWICE], ["2: approve"], [("f", "Approve")]),
    ],
)
def test_a_text_answers_the_matching_question(
    asks: list[Ask], texts: list[str], answers: list[tuple[str, str]]
) -> None:
    bound = bind(asks, said(*texts))
    assert given(bound) == answers
    assert not refused(bound)


@pytest.mark.parametrize(
    ("asks", "text"),
    [
        ([APPROVE], "rather not"),
        ([APPROVE], "yes please"),
        ([FORMAT, APPROVE], "2: rather not"),
        ([APPROVE], "3"),
        ([APPROVE, TWICE], "approve"),  # which one?
        ([APPROVE, TWICE], "1"),
    ],
)
def test_a_question_without_free_text_rejects_text_and_stays_open(asks: list[Ask], text: str) -> None:
    bound = bind(asks, said(text))
    [refusal] = refused(bound).values()
    assert not given(bound)
    assert refusal.kept is (text not in ("approve", "1")), "what is no answer is read later"


def test_the_refusal_names_the_choices_of_its_question() -> None:
    [refusal] = refused(bind([FORMAT, APPROVE], said("2: rather not"))).values()
    assert "**Approve**, **Deny**" in str(refusal)


def test_each_question_is_answered_once_by_the_first_answer() -> None:
    texts = said("csv", "by the way")
    bound = bind([FORMAT, DELETE], [clicked(DELETE, "Yes"), texts[0], clicked(DELETE, "No", "late"), texts[1]])
    assert given(bound) == [("b", "Yes"), ("a", "csv")]
    assert (bound["late"], bound["k1"]) == (Effect.DROPPED, Effect.REQUEST)


def test_without_an_open_question_messages_are_messages() -> None:
    bound = bind([], [clicked(DELETE, "Yes"), *said("hello")])
    assert bound == {"click": Effect.DROPPED, "k0": Effect.REQUEST}


def test_a_reply_to_the_message_of_a_question_answers_that_question() -> None:
    asks = [FORMAT, DELETE, SURE, APPROVE, TWICE]
    bound = bind(asks, said("no", "2", "no"), {"k0": "d", "k1": "f", "k2": "d"})
    assert given(bound) == [("d", "No".lower()), ("f", "Deny")]
    assert refused(bound) == {"k2": Refused(questions.KEPT_FOR_CLOSED, kept=False)}


def test_only_the_named_people_answer() -> None:
    foreign = [replace(message, author=Author("7", "Bob")) for message in (*said("approve"), clicked(APPROVE, "Deny"))]
    bound = bind([APPROVE], foreign)
    assert bound == {"k0": Effect.ASIDE, "click": Effect.DROPPED}
    assert given(bind([APPROVE, FORMAT], foreign)) == [("a", "approve")]


@pytest.mark.parametrize(
    ("asks", "text", "replies", "answers"),
    [
        ([FORMAT], "when is the release?", {}, []),
        ([FORMAT], "csv", {"k0": "a"}, [("a", "csv")]),
        ([DELETE], " no ", {}, [("b", " no ")]),
        ([DELETE], "rather not", {}, []),
        ([FORMAT, DELETE], "2: no", {}, []),
    ],
)
def test_words_of_others_answer_only_as_a_reply_or_as_exactly_an_option(
    asks: list[Ask], text: str, replies: dict[str, str], answers: list[tuple[str, str]]
) -> None:
    rows = [
        QuestionRow(
            "c", ask.id, 1, number, QuestionKind.ASK, ask.question, ask.options,
            1, "", QuestionState.OPEN, 0.0, None, "", "",
        )
        for number, ask in enumerate(asks, 1)
    ]  # fmt: skip
    bound = questions.bind(rows, said(text), replies, lambda *_asked: True, lambda *_asked: False)
    assert given(bound) == answers
    assert answers or bound == {"k0": Effect.ASIDE}
