"""The agent's tools, one per file."""

from __future__ import annotations

from agent.acp import invoke_agent
from agent.context import ToolServices
from agent.sections import AgentSettings
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
from agent.tools.tool import AgentTool, ToolMaker, always

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
    """Return the tools that these settings and services allow."""
    return [tool for make in MAKERS if (tool := make(settings, services))]


def all_tool_names() -> set[str]:
    """Return the names of all tools, also of those that other settings or services allow: a module has its tool's."""
    made = {tool.name for tool in make_tools(AgentSettings(), ToolServices(runs_commands=True))}
    return made | {make.__module__.rpartition(".")[2] for make in MAKERS if make.__module__ != always.__module__}
