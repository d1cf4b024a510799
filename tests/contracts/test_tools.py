"""Contract of every tool."""

from __future__ import annotations

import pytest

from agent.core.context import ToolServices
from agent.core.tool import AgentTool
from agent.settings.sections import AgentSettings
from agent.turn.tool_list import make_tools
from agent.web.fetcher import WebFetcher
from contracts.tool import ToolContract

SERVICES = ToolServices(runs_commands=True, remembers=True, fetcher=WebFetcher(), schedules=True, background=True)


@pytest.fixture(params=make_tools(AgentSettings(), SERVICES), ids=lambda tool: str(tool.name))
def tool(request: pytest.FixtureRequest) -> AgentTool:
    made: AgentTool = request.param
    return made


class TestEveryTool(ToolContract):
    """The kit's suite on every tool of Fawn."""
