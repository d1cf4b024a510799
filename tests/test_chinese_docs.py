"""The Chinese pages: what a reader types, copies and clicks there is the same as in the English ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHINESE = sorted(
    path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.zh.md"), *(ROOT / "docs").glob("*.zh.md")]
)
WHOLE = [name for name in CHINESE if "setup-" in name]  # page by page the same
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OTHER_WORDS = {"沙盒", "日程", "运维人员", "禁用"}  # for which the catalogue has another one


def english(name: str) -> str:
    return name.replace(".zh.md", ".md")


def text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def blocks(page: str) -> list[tuple[str, str]]:
    """Return the blocks of code without their comments."""
    return [(kind, re.sub(r"\s*#.*", "", code).strip()) for kind, code in BLOCK.findall(page)]


def spans(page: str) -> set[str]:
    """Return what stands in backquotes."""
    return set(re.findall(r"`([^`\n]+)`", BLOCK.sub("", page)))


def commands(page: str) -> set[str]:
    """Return the commands: of the program, of make, and of the chat."""
    return {span for span in spans(page) if re.match(r"(\.venv/bin/)?fawn |make |git |curl |[/!][a-z]", span)}


def pages_linked(page: str) -> set[str]:
    """Return the pages that are linked, a Chinese one as its English one."""
    return {english(target) for target in re.findall(r"\]\(([^)#\s]+\.md)", page)}


def test_the_pages_that_people_begin_with_exist_in_chinese() -> None:
    assert CHINESE == [
        "README.zh.md",
        "docs/README.zh.md",
        "docs/setup-dingtalk.zh.md",
        "docs/setup-feishu.zh.md",
        "docs/setup-wechat.zh.md",
        "docs/setup-wecom.zh.md",
    ]


@pytest.mark.parametrize("name", CHINESE)
def test_both_languages_link_to_each_other(name: str) -> None:
    other = english(name)
    assert f"]({Path(other).name})" in text(name)
    assert f"]({Path(name).name})" in text(other)


@pytest.mark.parametrize("name", WHOLE)
def test_a_set_up_page_has_the_same_code_commands_and_addresses(name: str) -> None:
    ours, theirs = text(name), text(english(name))
    assert blocks(ours) == blocks(theirs)
    assert commands(ours) == commands(theirs)
    address = r"https?://[^\s)`]+"
    assert set(re.findall(address, ours)) == set(re.findall(address, theirs))
    assert spans(ours) <= spans(theirs) | {"、"}
    assert len(re.findall(r"(?m)^## ", ours)) == len(re.findall(r"(?m)^## ", theirs))
    assert len(re.findall(r"(?m)^\| ", ours)) == len(re.findall(r"(?m)^\| ", theirs)), "the tables have other rows"


def test_the_readme_has_the_commands_of_the_english_one() -> None:
    ours, theirs = text("README.zh.md"), text("README.md")
    assert {span for span in commands(theirs) if span[0] in "/!"} <= commands(ours)
    assert commands(ours) - commands(theirs) == {"/language zh"}
    assert {span for span in commands(theirs) if "setup" in span} <= commands(ours)
    assert set(blocks(ours)) <= set(blocks(theirs))


def test_the_start_page_names_every_page() -> None:
    pages = {path.name for path in (ROOT / "docs").glob("*.md") if not path.name.endswith(".zh.md")} - {"README.md"}
    assert pages <= pages_linked(text("docs/README.md")), "add the page to docs/README.md and docs/README.zh.md"
    assert pages_linked(text("docs/README.zh.md")) == pages_linked(text("docs/README.md"))


@pytest.mark.parametrize("name", CHINESE)
def test_chinese_pages_use_the_words_of_the_catalogue(name: str) -> None:
    assert [word for word in OTHER_WORDS if word in text(name)] == []
