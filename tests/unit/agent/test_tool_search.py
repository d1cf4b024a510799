"""`tool_search`: which tools words find, and which names its description lists."""

from __future__ import annotations

import re
from typing import Any

import pytest
from langchain_core.messages import ToolMessage

from agent.mcp.tools import (
    MAX_LISTED_CHARS,
    SEARCH_TRAITS,
    DynamicTool,
    make_dynamic_tool,
    make_tool_search,
    search_tools,
)

DESCRIPTIONS = {
    "mcp__git__git_log": "Show the commits of the repository",
    "mcp__git__createBranch": "Make a new branch from the current one",
    "mcp__time__convert_time": "Convert a time between the zones of two places",
    "mcp__notes__read_graph": "Read the whole of the graph, with all of its nodes",
    "mcp__notes__to_do": "Add something to the list of things to do",
}


async def _run(args: dict[str, Any], call: str) -> ToolMessage:
    return ToolMessage("", tool_call_id=call)


def _tools(descriptions: dict[str, str]) -> dict[str, DynamicTool]:
    return {name: make_dynamic_tool(name, text, {}, SEARCH_TRAITS, _run) for name, text in descriptions.items()}


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("What time is it in the office in Tokyo when it is nine here?", "mcp__time__convert_time"),
        ("show me the last commits of this repository, please", "mcp__git__git_log"),
        ("create a branch", "mcp__git__createBranch"),
        ("select:mcp__notes__to_do", "mcp__notes__to_do"),
    ],
)
def test_the_words_of_a_person_find_the_tool(query: str, first: str) -> None:
    assert search_tools(_tools(DESCRIPTIONS), query)[0].name == first


def test_words_that_say_nothing_find_nothing() -> None:
    assert search_tools(_tools(DESCRIPTIONS), "what is the of to it") == []


def test_what_small_servers_leave_is_the_room_of_large_ones_and_none_is_invisible() -> None:
    small = {f"mcp__server{number:02}__{'x' * 30}": "" for number in range(40)}
    many = {f"mcp__big__tool_number_{number:04d}": "" for number in range(500)}
    text = make_tool_search(_tools({**many, **small}), ["slow", "down"]).description
    assert len(text) < MAX_LISTED_CHARS + 1000
    assert [number for number in range(40) if f"server{number:02}: {'x' * 30}" not in text] == []
    assert text.count("tool_number_") > 80
    assert "slow: (still starting" in text
    assert "down: (still starting" in text


def test_the_tools_of_every_server_are_listed() -> None:
    many = {f"mcp__big__tool_number_{number:04d}": "" for number in range(500)}
    text = make_tool_search(_tools({**many, **DESCRIPTIONS})).description
    assert "git: git_log, createBranch" in text
    assert "notes: read_graph, to_do" in text
    assert re.search(r"tool_number_\d+ … and \d\d\d more; git: ", text)
    assert len(text) < MAX_LISTED_CHARS + 1000
