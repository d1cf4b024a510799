"""The words with which an operator names a message."""

from __future__ import annotations

import time

import pytest

from agent.messages import Thread
from bot.admin.message_search import Wanted

NOW = time.mktime((2026, 11, 28, 15, 0, 0, 0, 0, -1))
AT = NOW - 57 * 60 + 20  # 14:03:20
SLACK = Thread("slack", "T1", "C042", "1764338600.000100")
ID = "1764338600.000100"


@pytest.mark.parametrize(
    ("words", "fits"),
    [
        ("jane", True),
        ("@jane", True),
        ("Jane Doe", True),
        ("U7", True),
        ("jane in #ops at 14:03", True),
        ("jane in ops at 14:03", True),  # a shell takes # for a comment
        ("jane in random at 14:03", False),
        ("by jane at 14:03", True),
        ("#Ops 14:02", True),
        ("jane in #ops at 2026-11-28 14:03", True),
        ("from doe in c042", True),
        ("ops", True),
        (f"https://team.slack.com/archives/C042/p{ID.replace('.', '')}", True),
        (f"https://team.slack.com/archives/C042/p{ID.replace('.', '')}?thread_ts=1.2&cid=C042", True),
        ("jan", False),
        ("jane in #random", False),
        ("jane at 14:10", False),
        ("jane at 2026-11-27 14:03", False),
        (f"https://team.slack.com/archives/C043/p{ID.replace('.', '')}", False),
        ("https://team.slack.com/archives/C042/p1764338600000101", False),
        ("max in #ops at 14:03", False),
        ("jane at 99:99", True),
    ],
)
def test_a_person_a_chat_a_time_or_a_link_names_a_message(words: str, fits: bool) -> None:
    assert Wanted.parse(words, NOW).fits(AT, SLACK, ("U7", "Jane Doe"), "#ops", ID) is fits


@pytest.mark.parametrize(
    ("channel", "link"),
    [
        (Thread("telegram", "777", "-1001234", "5"), "https://t.me/c/1234/45"),
        (Thread("discord", "1", "998"), "https://discord.com/channels/77/998/45"),
        (Thread("matrix", "x", "!room:example.org"), "https://matrix.to/#/!room:example.org/45"),
    ],
)
def test_a_link_of_each_platform_names_its_message(channel: Thread, link: str) -> None:
    assert Wanted.parse(link, NOW).fits(AT, channel, ("7",), "", "45")
    assert not Wanted.parse(link, NOW).fits(AT, channel, ("7",), "", "46")
    assert not Wanted.parse(link, NOW).fits(AT, Thread("x", "y", "z"), ("7",), "", "45")


def test_a_time_without_a_date_is_the_latest_one() -> None:
    assert Wanted.parse("at 16:00", NOW).at == NOW - 23 * 3600
    assert Wanted.parse("at 14:59", NOW).at == NOW - 60


def test_words_without_end_cost_no_time() -> None:
    for words in ("https://" + "a/" * 100_000, "12:" * 100_000, " in " * 50_000, "#" * 100_000):
        Wanted.parse(words, NOW)
