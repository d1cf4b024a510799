"""Agents that talk to people: the default one, and those that the configuration names."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from langchain_core.tools import BaseTool

from agent.brief import join_parts
from agent.models.settings import AgentConfigError
from agent.resume import Graph
from agent.sections import AgentSettings
from agent.spending import LEAD
from agent.subagents.kinds import matching_tools
from agent.subagents.settings import NamedAgentSettings
from agent.subagents.task import make_task_tool
from agent.tools.tool import TASK_TOOL

RESERVED_NAMES = ("default", LEAD)


@dataclass(frozen=True, slots=True)
class AgentProfile:
    """An agent: its graph, its prompt, and its model ("": the lead model)."""

    graph: Graph
    prompt: str
    model: str = ""


def check_agents(settings: AgentSettings, models: Collection[str]) -> None:
    """Check the names that the configured agents refer to. Raises AgentConfigError."""
    kinds = settings.subagents.all_kinds()
    names: set[str] = set()
    for number, entry in enumerate(settings.agents):
        at = ("agents", number)
        if entry.name in (*RESERVED_NAMES, *names) or " " in entry.name:
            raise AgentConfigError(at, f"the name {entry.name!r} is taken or has a space", "choose another name")
        if entry.model and entry.model not in models:
            raise AgentConfigError(at, f"there is no model {entry.model!r}; configured are {', '.join(models)}")
        if unknown := [kind for kind in entry.kinds if kind not in kinds]:
            raise AgentConfigError(at, f"there is no kind {unknown[0]!r}; there are {', '.join(kinds)}")
        names.add(entry.name)


def agent_tools(entry: NamedAgentSettings, settings: AgentSettings, tools: Sequence[BaseTool]) -> list[BaseTool]:
    """Return the tools of a named agent. Its `task` offers its kinds."""
    kinds = settings.subagents.all_kinds()
    offered = {name: kind for name, kind in kinds.items() if not entry.kinds or name in entry.kinds}
    wanted = matching_tools(tools, [*entry.tools, TASK_TOOL] if entry.tools and entry.kinds else entry.tools)
    return [make_task_tool(offered) if tool.name == TASK_TOOL else tool for tool in wanted]


def agent_prompt(entry: NamedAgentSettings, prompt: str) -> str:
    """Return the prompt of a named agent: the system prompt, then its own instructions."""
    return join_parts(prompt, entry.prompt)
