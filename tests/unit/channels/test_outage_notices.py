"""Notices about messages that cannot be stored: once per thread and outage."""

from __future__ import annotations

from contextvars import copy_context
from dataclasses import replace

import pytest

from agent.messages import Author, Kind, Message, Origin, Thread, Unreadable
from catalogue import _, use_language
from channels.shared.inbound import OutageNotices
from channels.shared.texts import NOT_STORED, option_in_full, remove_bot_mention, text_for, use_chosen_languages

HERE, THERE = Thread("wall", "1", "here"), Thread("wall", "1", "there")
SAID = Message(HERE, "k1", "1", Author("42", "Jane"), "hello", 0.0, addressed=True, origin=Origin.PERSON)


def test_a_thread_is_notified_once_per_outage() -> None:
    notices = OutageNotices()
    elsewhere = replace(SAID, thread=THERE)
    assert notices.take_due([SAID, replace(SAID, id="2")]) == [SAID]
    assert notices.take_due([SAID, elsewhere]) == [elsewhere]
    notices.end()
    assert notices.take_due([SAID]) == [SAID]


def test_only_messages_to_the_bot_are_answered() -> None:
    quiet: list[Message | Unreadable] = [
        Unreadable("wall", "k", b"", "?"),
        replace(SAID, addressed=False),
        replace(SAID, kind=Kind.CLICK),
    ]
    notices = OutageNotices()
    assert notices.take_due(quiet) == []
    assert notices.take_due([SAID]) == [SAID]


@pytest.mark.parametrize(
    ("text", "left"),
    [("\0, hello", "hello"), ("\0：你好", "你好"), ("ask \0 now", "ask now"), ("a\n\0 b", "a\nb"), ("\0", "")],
)
def test_a_mention_of_the_bot_is_removed_with_its_punctuation(text: str, left: str) -> None:
    assert remove_bot_mention(text) == left


def test_a_cut_label_stands_in_full_in_the_text() -> None:
    text = "Which?\n\n1. short\n2. a long one"
    assert [option_in_full(label, index, text) for label, index in (("short", "0"), ("a lo…", "1"), ("b…", "1"))] == [
        "short",
        "a long one",
        "b…",
    ]


def test_a_notice_is_in_the_chosen_language_or_that_of_the_platform() -> None:
    """A person's choice goes before the hint of the platform."""

    def speak(chosen: str, hint: str) -> str:
        use_chosen_languages(lambda thread, person: chosen if (thread, person) == (HERE, "42") else "")
        return text_for(replace(SAID, author=Author("42", "Jane", language=hint)), NOT_STORED)

    with use_language("zh"):
        chinese = _(NOT_STORED)
    texts = [copy_context().run(speak, chosen, hint) for chosen, hint in (("zh", "en"), ("", "zh-hans"), ("en", "zh"))]
    assert texts == [chinese, chinese, NOT_STORED]
