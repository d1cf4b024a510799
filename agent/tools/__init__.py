"""The agent's tools, one per file."""

from __future__ import annotations

from agent.context import ToolServices
from agent.sections import AgentSettings
from agent.subagents import task
from agent.tools import (
    ask_clarification,
    bash,
    check_citations,
    expose,
    glob,
    grep,
    ls,
    present_files,
    read_file,
    str_replace,
    view_image,
    web_fetch,
    web_search,
    write_file,
)
from agent.tools.tool import AgentTool, ToolMaker

MAKERS: tuple[ToolMaker, ...] = (  # in the order in which the model gets them
    bash.make,
    expose.make,
    read_file.make,
    write_file.make,
    str_replace.make,
    ls.make,
    glob.make,
    grep.make,
    view_image.make,
    web_search.make,
    web_fetch.make,
    check_citations.make,
    present_files.make,
    ask_clarification.make,
    task.make,
)


def make_tools(settings: AgentSettings, services: ToolServices) -> list[AgentTool]:
    """Return the tools that these settings and services allow."""
    return [tool for make in MAKERS if (tool := make(settings, services))]
