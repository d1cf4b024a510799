"""The talk above a message: the root of a thread stays, the latest fit, and a gap is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.user_message import format_body
from agent.messages import Author, Message, Origin, Quote, Thread, UserInput
from bot.journey.talk_above import TalkAbove

REPLY = Message(Thread("slack", "T1", "C1", "1.0"), "k9", "9.0", Author("7", "Jane"), "why?", 9.0, origin=Origin.PERSON)
ROOT, LATER = (
    Quote("Ann", "the pump fails", "earlier", "1", "1.0"),
    [Quote("Bob", f"talk {number}", "earlier", "2", f"{number}.0") for number in range(2, 9)],
)
GAP = Quote("", "90", "omitted")


def bounded(quotes: list[Quote], most: int = 30, tokens: int = 3000) -> list[str]:
    """Return the texts of what is left of some quotes, a gap as a number in brackets."""
    message = replace(REPLY, quotes=tuple(quotes))
    above = TalkAbove(most, tokens)
    return [f"[{q.text}]" if q.kind == "omitted" else q.text for q in above.bound(message).quotes]


@pytest.mark.parametrize(
    ("quotes", "most", "tokens", "left"),
    [
        ([ROOT, *LATER], 30, 3000, ["the pump fails", *(f"talk {n}" for n in range(2, 9))]),
        ([ROOT, *LATER], 2, 3000, ["the pump fails", "[5]", "talk 7", "talk 8"]),
        ([ROOT, GAP, *LATER], 2, 3000, ["the pump fails", "[95]", "talk 7", "talk 8"]),
        ([ROOT, Quote("", "", "omitted"), *LATER], 2, 3000, ["the pump fails", "[]", "talk 7", "talk 8"]),
        ([ROOT, *LATER], 30, 10, ["the pump fails", "[5]", "talk 7", "talk 8"]),
        (LATER, 2, 3000, ["[5]", "talk 7", "talk 8"]),
        ([ROOT, *LATER], 0, 3000, []),
        (
            [Quote("Ann", "pump " * 9000, "earlier", "1", "1.0"), *LATER],
            1,
            20,
            [f"{('pump ' * 9000)[:30]}…", "[6]", "talk 8"],
        ),
        ([], 30, 3000, []),
    ],
)
def test_the_root_stays_and_a_gap_is_said(quotes: list[Quote], most: int, tokens: int, left: list[str]) -> None:
    assert bounded(quotes, most, tokens) == left


@pytest.mark.parametrize(
    ("n", "words"), [("97", "[97 earlier messages of this thread are left out here]"), ("", "[More ")]
)
def test_the_agent_reads_that_messages_are_left_out(n: str, words: str) -> None:
    message = replace(REPLY, quotes=(Quote("", n, "omitted"),))
    assert words in format_body(UserInput(message))
