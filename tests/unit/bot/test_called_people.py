"""Whom an answer notifies: two texts have to agree."""

from __future__ import annotations

import pytest

from bot.notifications.run_pings import called_ids

KNOWN = [("U2", "Kim"), ("U3", "Max Power"), ("U4", "李雷"), ("U5", "Sam"), ("U6", "sam"), ("U7", "")]


@pytest.mark.parametrize(
    ("words", "answer", "called"),
    [
        ("ping Kim when it is done", "@Kim it is done.", ["U2"]),
        ("ping @kim and Max Power", "@Kim, @max power: done", ["U2", "U3"]),
        ("完成后告诉李雷", "@李雷 已完成", ["U4"]),
        ("ping Kim", "Kim, it is done", []),  # no "@"
        ("is it done?", "@Kim it is done", []),  # a text of others may have asked for it
        ("ping Kimberly", "@Kim it is done", []),
        ("ping Kim", "@Kimberly it is done, mail kim@kim.example.org", []),
        ("ping Sam", "@Sam it is done", []),  # who of the two?
        ("ping Kim", "write `@Kim`\n```\n@Kim\n```\n", []),
        ("ping everyone, all and here", "@everyone @all @here @channel <!channel> <at id=all></at>", []),
        ("ping <@U2|Kim>", "<@U2> it is done", ["U2"]),
        ("is it done?", "<@U2> it is done", []),
        ("ping <@U9|Eve>", "<@U9> it is done", []),  # unknown in this chat
    ],
)
def test_an_answer_calls_whom_the_request_names(words: str, answer: str, called: list[str]) -> None:
    mentioned = {"U2"} if "<@U2" in words else set[str]()
    assert called_ids(answer, words, mentioned, KNOWN) == called


def test_long_texts_and_many_names_are_bounded() -> None:
    many = [(f"U{n}", f"Name {n}") for n in range(5000)]
    assert called_ids("@Name 4000 " * 9000, "Name 4000 " * 9000, set(), many) == []
    assert called_ids("@Name 7 " * 9000, "Name 7", set(), many) == ["U7"]
