"""Each paragraph of docs/security.md that promises something names the tests that prove it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "security.md"
PROMISE = re.compile(
    r"(?i)\b(never|only|nobody|nothing|cannot|always|refuses?|refused|redacts?|deletes?|deleted|removes)\b"
)
MARK = re.compile(r"<!-- test: (\S+)::(\w+) -->")
EXCUSE = re.compile(r"<!-- no promise: [^>]+ -->")  # a limit, an advice, or a matter of the operator


def paragraphs() -> Iterator[str]:
    text = re.sub(r"```.*?```", "", PAGE.read_text("utf-8"), flags=re.DOTALL)
    return (each.strip() for each in re.split(r"\n\s*\n", text) if each.strip() and not each.startswith(("#", "\n#")))


def test_each_paragraph_that_promises_names_its_tests() -> None:
    bare = [
        each[:120]
        for each in paragraphs()
        if not each.startswith("|")  # the marks of a table are below it
        and PROMISE.search(MARK.sub("", each))
        and not MARK.search(each)
        and not EXCUSE.search(each)
    ]
    assert bare == [], "add `<!-- test: path::name -->`, or `<!-- no promise: why -->` to what only explains"


@pytest.mark.parametrize(("path", "name"), sorted(set(MARK.findall(PAGE.read_text("utf-8")))))
def test_the_named_test_exists(path: str, name: str) -> None:
    assert re.search(rf"(?m)^(?:async )?def {name}\(", (ROOT / path).read_text("utf-8"))
    assert path.startswith("tests/")


def test_a_promise_without_a_test_is_noticed() -> None:
    assert PROMISE.search("Fawn never does that.")
    assert not MARK.search("<!-- test: nowhere -->")
