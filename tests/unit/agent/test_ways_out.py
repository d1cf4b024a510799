"""The table of ways out has each tool, and says what its calls really meet."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.core.context import ToolServices
from agent.core.tool import ToolTraits
from agent.exposure import Exposure, WayOut
from agent.settings.sections import AgentSettings
from agent.turn.tool_list import all_tool_names, make_tools
from tests.support.ways_out import STAYS, WAYS_OUT, Way

ROOT = Path(__file__).parents[3]
NAMED = {tool for way in WAYS_OUT for tool in way.tools}
JUDGED: tuple[WayOut, ...] = ("address", "query", "arguments", "network", "note")


def test_each_tool_is_a_way_out_or_stays() -> None:
    assert all_tool_names() == (NAMED - {"mcp__*"}) | {*STAYS}
    assert not NAMED & {*STAYS}


def test_the_guard_of_each_tool_is_the_one_that_it_declares() -> None:
    guards = {tool: way.guard for way in WAYS_OUT if way.guard in JUDGED for tool in way.tools}
    for tool in make_tools(AgentSettings(), ToolServices(runs_commands=True)):
        assert tool.traits.outward == guards.get(tool.name, "none"), tool.name
    for path in (*(ROOT / "agent/tools").glob("*.py"), ROOT / "agent/acp/invoke_agent.py"):
        declared = re.search(r'way_out="(\w+)"', path.read_text("utf-8"))
        wanted = guards.get(path.stem)
        assert (declared[1] if declared else None) == wanted or path.stem == "check_citations", path
    assert ToolTraits().outward == guards["mcp__*"], "what declares nothing"


def test_all_arguments_ask() -> None:
    """Also those of external agents, which a sandbox and a model of their own work on."""
    met = Exposure(private=True, untrusted=True, network=lambda: True)
    for way in WAYS_OUT:
        if way.guard in ("arguments", "network"):
            assert [met.destination(way.guard, tool, {}) for tool in way.tools] == [*way.tools]


@pytest.mark.parametrize("way", WAYS_OUT, ids=lambda way: str(way.to))
def test_the_test_of_each_way_out_exists(way: Way) -> None:
    path, _, name = way.test.partition("::")
    assert re.search(rf"(?m)^(?:async )?def {name}\(", (ROOT / path).read_text("utf-8"))
