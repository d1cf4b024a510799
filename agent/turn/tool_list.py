"""The agent's tools, one per file.

Make the tools of an operator's own code: the entries of `tools:`.

They are tools as Fawn's own are. What one does not declare by its `ToolTraits` is assumed with care: its calls ask,
happen at most once, can carry data out by their arguments, and bring strangers' text and private data. The last
two hold also for one whose calls run without a question, unless it names `way_out` and `brings`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import get_args

from agent.acp import invoke_agent
from agent.core.context import ToolServices
from agent.core.tool import AgentTool, Effect, ToolMaker, ToolTraits, always, make_tool
from agent.exposure import Brings, WayOut
from agent.mcp.names import RESOURCE_TOOLS
from agent.permissions.rules import Verdict
from agent.settings.models import AgentConfigError, call_own, find_own
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
from agent.turn.tool_names import FOREIGN_PREFIXES
from catalogue import N_, LazyText

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")  # what every provider of models accepts


def make_own_tools(settings: AgentSettings, services: ToolServices, taken: Collection[str]) -> list[AgentTool]:
    """Return the tools of `tools:` that these settings and services allow. Raises AgentConfigError."""
    made: list[AgentTool] = []
    for number, entry in enumerate(settings.tools):
        at = ("tools", number)
        tool = _make_tool(entry, at, settings, services)
        if tool is not None:
            _check_name(tool.name, at, {*taken, *(other.name for other in made)})
            _check_contract(tool, entry.use, at)
            made.append(tool.model_copy(update={"traits": careful_traits(tool.traits)}))
    return made


def careful_traits(traits: ToolTraits) -> ToolTraits:
    """Return traits in which nothing about data is left to what a permission suggests of Fawn's own tools."""
    return replace(traits, way_out=traits.way_out or "arguments", brings=traits.brings or "everything")


def own_tool_names(entries: Sequence[ToolSettings], taken: Collection[str]) -> set[str]:
    """Return the names of own tools. One that these settings do not allow has that of its module."""
    settings, services = AgentSettings(tools=tuple(entries)), ToolServices(runs_commands=True)
    made = {tool.name for tool in make_own_tools(settings, services, taken)}
    return made | {entry.use.partition(":")[0].rpartition(".")[2] for entry in entries}


def _make_tool(
    entry: ToolSettings, at: tuple[str, int], settings: AgentSettings, services: ToolServices
) -> AgentTool | None:
    found = find_own(entry.use, at)
    if inspect.iscoroutinefunction(found):  # a plain function: the most careful traits
        found = make_tool(ToolTraits())(found)
    if isinstance(found, AgentTool):
        if entry.options:
            wrong = LazyText(N_("have no effect: {use} is a tool, and no function that makes one"), use=entry.use)
            raise AgentConfigError((*at, "options"), wrong, LazyText(N_("remove the line")))
        return found
    tool = call_own(entry.use, found, at, settings, services, options=entry.options)
    if tool is not None and not isinstance(tool, AgentTool):
        fix = LazyText(N_("make it with `agent.core.tool.make_tool`, as docs/extend.md shows"))
        raise AgentConfigError((*at, "use"), LazyText(N_("{use} is no tool"), use=entry.use), fix)
    return tool


def _check_name(name: str, at: tuple[str, int], taken: Collection[str]) -> None:
    if not _NAME.fullmatch(name) or name.startswith(FOREIGN_PREFIXES):
        fix = LazyText(N_("name the function in lower case, with at most 64 letters, digits and underscores"))
        raise AgentConfigError(at, LazyText(N_("{name!r} is no name of a tool"), name=name), fix)
    if name in taken:
        raise AgentConfigError(
            at, LazyText(N_("another tool is called {name!r}"), name=name), LazyText(N_("give it its own name"))
        )


def _check_contract(tool: AgentTool, use: str, at: tuple[str, int]) -> None:
    """Check what the model and the policies need of every tool (contracts/tool.py has the whole)."""
    if not tool.description.strip():
        wrong = LazyText(N_("{use} has no docstring, which the model reads"), use=use)
        raise AgentConfigError((*at, "use"), wrong, LazyText(N_("say there what it does, and when to use it")))
    for name, known in (("permission", Verdict), ("way_out", WayOut), ("brings", Brings), ("effect", Effect)):
        value = getattr(tool.traits, name)
        if value is not None and not callable(value) and value not in get_args(known):
            wrong = LazyText(N_("{use} has traits whose `{name}` is {value!r}"), use=use, name=name, value=value)
            fix = LazyText(N_("choose one of {names}"), names=[*get_args(known)])
            raise AgentConfigError((*at, "use"), wrong, fix)


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
