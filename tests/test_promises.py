"""Each sentence of docs/security.md has a note: the tests that prove it, or why none can."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "security.md"
NOTE = re.compile(r"(?m)^\[\^([\w-]+)\]: (.+)$")
MARKS = re.compile(r"(?:\[\^[\w-]+\])+$")
NAME = re.compile(r"\[\^([\w-]+)\]")
EXCUSES = {"context", "limit", "advice"}
END = re.compile(r"(?<=[.!?])((?:\[\^[\w-]+\])+|)\s+(?=[A-Z`\[*])")  # of a sentence, with its marks
PROMISE = re.compile(
    r"(?i)\b(never|nobody|nothing|cannot|always|refused|redacts?|deletes?|deleted|removes|asks?|gets? no|read-only)\b"
)


def notes(text: str) -> dict[str, list[str]]:
    """Return the notes by name: the words of each."""
    return {name: words.split() for name, words in NOTE.findall(text)}


def sentences(text: str) -> Iterator[str]:
    """Yield each sentence with its marks; of a table, each row."""
    body = re.sub(r"```.*?```", "", NOTE.sub("", text), flags=re.DOTALL)
    for block in re.split(r"\n\s*\n", body):
        lines = [line for line in block.strip().splitlines() if line and not line.startswith("#")]
        if lines and lines[0].startswith("|"):
            yield from (row.strip("| ") for row in lines if re.search(r"\w", row))
            continue
        parts = END.split(" ".join(lines))
        yield from (words + marks for words, marks in zip(parts[::2], [*parts[1::2], ""], strict=True) if words)


def unmarked(text: str) -> list[str]:
    """Return the sentences without a note."""
    return [each for each in sentences(text) if not MARKS.search(each)]


def test_each_sentence_has_a_note() -> None:
    bare = unmarked(PAGE.read_text("utf-8"))
    assert bare == [], "end the sentence with `[^name]`, and add `[^name]: tests/file.py::test_name` below"


def test_notes_and_marks_are_the_same() -> None:
    text = PAGE.read_text("utf-8")
    assert set(NAME.findall(NOTE.sub("", text))) == set(notes(text))


def test_an_excuse_promises_nothing() -> None:
    """What has an excuse in place of a test says what is not protected, what to do, or why."""
    excused = [each for each in sentences(PAGE.read_text("utf-8")) if set(NAME.findall(each)) <= EXCUSES]
    fawn = [each for each in excused if re.match(r"(Fawn|The (service|agent|log|bot))\b", each)]
    assert [each for each in fawn if PROMISE.search(each)] == []


@pytest.mark.parametrize(
    ("name", "tests"),
    [each for each in notes(PAGE.read_text("utf-8")).items() if each[0] not in EXCUSES],
)
def test_the_named_tests_exist(name: str, tests: list[str]) -> None:
    assert tests, name
    for test in tests:
        path, _colons, function = test.partition("::")
        assert path.startswith(("tests/", "contracts/")), test
        assert re.search(rf"(?m)^(?: {{4}})?(?:async )?def {function}\(", (ROOT / path).read_text("utf-8")), test


def test_a_sentence_without_a_note_is_noticed() -> None:
    good = "One thing holds.[^a] Fawn never does that.[^b]\nIt asks: `x`, and waits.[^a]\n\n[^a]: tests/x.py::y\n"
    assert unmarked(good) == []
    assert unmarked("One thing holds.[^a] Fawn never does that. Another.[^b]") == ["Fawn never does that."]
    assert unmarked("| a | promise |\n| --- | --- |\n| b | proved[^a] |") == ["a | promise"]
    assert unmarked("Fawn never\ndoes that") == ["Fawn never does that"]
    assert unmarked("# A heading\n\n```\ncode.\n```\n") == []
