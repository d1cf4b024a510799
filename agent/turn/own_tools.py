"""Make the tools of an operator's own code: the entries of `tools:`.

They are tools as Fawn's own are. What one does not declare by its `ToolTraits` is assumed with care: its calls ask,
happen at most once, can carry data out by their arguments, and bring strangers' text and private data. The last
two hold also for one whose calls run without a question, unless it names `way_out` and `brings`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from agent.core.context import ToolServices
from agent.core.tool import AgentTool, ToolTraits
from agent.settings.models import AgentConfigError
from agent.settings.own_code import call_own, find_own
from agent.settings.sections import AgentSettings, ToolSettings
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
