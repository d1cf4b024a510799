"""What a person decides about is shown exactly as it is, on every surface that asks."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable
from dataclasses import replace

import pytest
from langgraph.types import Interrupt
from markdown_it import MarkdownIt

from agent.core.event_mapper import interrupt_question
from agent.exposure import OUTWARD
from agent.foreign_text import printable_text
from agent.mcp.elicitation import Field, _asks
from agent.permissions.invisible import PROSE, is_seen, show_invisible
from bot.service.schedule_words import confirmation_text
from bot.skills.decisions import render_diff
from bot.storage.schedules import ScheduleRow

IGNORABLE = "\u00ad\u034f\u061c\u115f\u17b4\u180b\u200b\u200d\u2060\u206a\u3164\ufe00\ufe0f\ufeff\uffa0\ufff0"
HIDDEN = [*IGNORABLE, "\u202e", "\u2066", "\u2800", "\u00a0", "\U000e0041", "\U000e0100", "\U000e01ef", "\U0001d173"]
MARKDOWN = ("[1]: http://evil.test", "[words](http://evil.test 'title')", "![x](http://evil.test)", "<b>x</b>", "````")


def _by_category() -> dict[str, str]:
    found: dict[str, str] = {}
    for code in range(sys.maxunicode + 1):
        found.setdefault(unicodedata.category(chr(code)), chr(code))
    return found


CATEGORIES = _by_category()


def _call(text: str) -> str:
    value = {"kind": "approve", "name": "bash", "args": {"command": text}}
    return interrupt_question(Interrupt(value)).to_question().question


def _outward(text: str) -> str:
    to = f"web_fetch {text}"
    value = {"kind": "approve", "name": "web_fetch", "args": {}, "grant": [OUTWARD, to], "argument": "", OUTWARD: to}
    return interrupt_question(Interrupt(value)).to_question().question


def _form(text: str) -> str:
    field = Field.of("f", {"title": text, "description": text, "enum": [text, "b"]}, True)
    return f"{_asks('server', text)}\n\n{field.line(500)}"


ROW = ScheduleRow(
    id=1,
    channel="telegram",
    owner="7",
    name="Jane",
    language="",
    guest=0,
    private=1,
    thread="telegram:bot:7",
    kind="watch",
    what="stretch",
    url="",
    form="cron",
    expression="0 9 * * *",
    zone="UTC",
    since=0.0,
    missed="once",
    state="proposed",
    next_at=None,
    changes=0,
    created=0.0,
    seen="",
    failures=0,
    moves=0,
)


@pytest.fixture(params=["call", "outward", "schedule", "watch", "skill", "form"])
def shown(request: pytest.FixtureRequest) -> Callable[[str], str]:
    return {
        "call": _call,
        "outward": _outward,
        "schedule": lambda text: confirmation_text(replace(ROW, what=text), 0.0),
        "watch": lambda text: confirmation_text(replace(ROW, what="Look", url=text), 0.0),
        "skill": lambda text: render_diff(show_invisible(text, PROSE)),
        "form": _form,
    }[request.param]


def test_a_reader_sees_every_character(shown: Callable[[str], str]) -> None:
    own = shown("x")
    for char in [*CATEGORIES.values(), *HIDDEN]:
        text = shown(f"be{char}{char}fore {char} after")
        unseen = [each for each in text if not is_seen(each) and each not in PROSE and each not in own]
        assert not unseen, f"U+{ord(char):04X} {unicodedata.category(char)}"
        assert all(is_seen(each) for each in printable_text(char) if each != "\n")
    assert "b \u0301" not in shown("b \u0301")
    assert f"b{4 * chr(0x301)}" not in shown(f"b{9 * chr(0x301)}")


def test_no_markdown_hides_or_changes_a_word(shown: Callable[[str], str]) -> None:
    for words in MARKDOWN:
        for each in (words, f"words\n\n{words}", f"```\n{words}"):
            tokens = MarkdownIt("commonmark").parse(shown(each))
            inner = [token for outer in tokens for token in [outer, *(outer.children or [])]]
            assert not [token.type for token in inner if token.type in ("link_open", "image", "html_inline")]
            code = "".join(token.content for token in inner if token.type in ("fence", "code_inline"))
            said = words.split()[-1].strip("`")
            assert said in code.replace("\\n", "\n") or said not in shown(each)


def test_a_host_is_shown_as_it_is_dialled(shown: Callable[[str], str]) -> None:
    for host in (
        "p\u0430ges.test",
        "\u0440\u0430.test",
        "b\u00fccher.test",
        "ev\u0131l.test",
        "ok.test\u3002ev\u0456l.test",
    ):
        text = shown(f"http://u:p@{host}/path")
        assert host not in text
        assert "xn--" in text


@pytest.mark.parametrize(
    "word", ["p\u0430ges.test/x", "\u0440\u0430ges.test", "g\u03bfogle.test", "\u0410dmin", "r\u043e\u043et"]
)
def test_letters_that_look_like_others_are_seen_in_any_word(shown: Callable[[str], str], word: str) -> None:
    text = shown(f"curl {word}")
    assert word not in text
    assert any(mark in text for mark in ("\\u04", "\\u03", "xn--"))


def test_words_in_any_language_stay_as_they_are() -> None:
    for text in (
        "Größe 5 µm",
        "отчёт.pdf",
        "SQL-запрос из app.py, Δt = 3 μs",
        "每天看 https://example.com，然后写给 @张三",
        "שלום",
        "हिन्दी",
        "ไทย",
        "한국어",
        "🎉",
        "e\u0301",
    ):
        assert show_invisible(text) == text
