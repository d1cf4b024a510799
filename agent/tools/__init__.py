"""The agent's tools, one per file."""

from __future__ import annotations

from agent.context import ToolServices
from agent.sections import AgentSettings
from agent.tools import (
    ask_clarification,
    bash,
    expose,
    glob,
    grep,
    ls,
    memory,
    present_files,
    read_file,
    str_replace,
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
    present_files.make,
    ask_clarification.make,
    memory.make,
)


def make_tools(settings: AgentSettings, services: ToolServices) -> list[AgentTool]:
    """Return the tools that these settings and services allow."""
    return [tool for make in MAKERS if (tool := make(settings, services))]
