"""The agent's tools, one per file."""

from __future__ import annotations

from collections.abc import Sequence

from agent.acp import invoke_agent
from agent.core.context import ToolServices
from agent.core.tool import AgentTool, ToolMaker, always
from agent.mcp.names import RESOURCE_TOOLS
from agent.settings.sections import AgentSettings, ToolSettings
from agent.subagents import task
from agent.tools import (
    ask_clarification,
    background_tasks,
    bash,
    check_citations,
    expose,
    glob,
    grep,
    ls,
    memory,
    present_files,
    propose_skill,
    read_file,
    run_skill,
    schedule,
    str_replace,
    view_image,
    web_fetch,
    web_search,
    write_file,
    write_todos,
)
from agent.turn.own_tools import make_own_tools, own_tool_names

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
    write_todos.make,
    run_skill.make,
    propose_skill.make,
    ask_clarification.make,
    memory.make,
    schedule.make,
    background_tasks.make,
    task.make,
    invoke_agent.make,
)


def make_tools(settings: AgentSettings, services: ToolServices) -> list[AgentTool]:
    """Return the tools that these settings and services allow, the operator's own last. Raises AgentConfigError."""
    made = [tool for make in MAKERS if (tool := make(settings, services))]
    return [*made, *make_own_tools(settings, services, all_tool_names())] if settings.tools else made


def all_tool_names(own: Sequence[ToolSettings] = ()) -> set[str]:
    """Return the names of all tools, also of those that other settings or services allow: a module has its tool's.

    Raises AgentConfigError for a tool of the operator's `own` that cannot be made.
    """
    made = {tool.name for tool in make_tools(AgentSettings(), ToolServices(runs_commands=True))}
    names = made | {make.__module__.rpartition(".")[2] for make in MAKERS if make.__module__ != always.__module__}
    names |= {*RESOURCE_TOOLS}  # of the MCP servers of a configuration
    return names | (own_tool_names(own, names) if own else set())
