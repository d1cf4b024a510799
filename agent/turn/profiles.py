"""Agents that talk to people: the default one, and those that the configuration names."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from langchain_core.tools import BaseTool

from agent.core.brief import join_parts
from agent.core.graphs import Graph
from agent.core.tool import TASK_TOOL
from agent.reach import Reach
from agent.settings.models import NO_SUCH_MODEL, AgentConfigError
from agent.settings.sections import AgentSettings
from agent.settings.subagents import NamedAgentSettings
from agent.spending import LEAD
from agent.subagents.task import make_task_tool
from agent.turn.kinds import matching_tools
from catalogue import N_, LazyText

RESERVED_NAMES = ("default", LEAD)


@dataclass(frozen=True, slots=True)
class AgentProfile:
    """An agent: its graph, its prompt, its model ("": the lead model), and what it may use."""

    graph: Graph
    prompt: str
    model: str = ""
    reach: Reach = field(default_factory=Reach)


def check_agents(settings: AgentSettings, models: Collection[str]) -> None:
    """Check the names that the configured agents refer to. Raises AgentConfigError."""
    kinds = settings.subagents.all_kinds()
    names: set[str] = set()
    for number, entry in enumerate(settings.agents):
        at = ("agents", number)
        if entry.name in (*RESERVED_NAMES, *names) or " " in entry.name:
            wrong = LazyText(N_("the name {name!r} is taken or has a space"), name=entry.name)
            raise AgentConfigError(at, wrong, LazyText(N_("choose another name")))
        if entry.model and entry.model not in models:
            raise AgentConfigError(at, LazyText(NO_SUCH_MODEL, model=entry.model, models=[*models]))
        if unknown := [kind for kind in entry.kinds if kind not in kinds]:
            text = N_("there is no kind {kind!r}; there are {kinds}")
            raise AgentConfigError(at, LazyText(text, kind=unknown[0], kinds=[*kinds]))
        names.add(entry.name)


def tool_patterns(entry: NamedAgentSettings) -> Sequence[str]:
    """Return the names and patterns of a named agent's tools, () for all. Who names kinds may start them."""
    return (*entry.tools, TASK_TOOL) if entry.tools and entry.kinds else entry.tools


def agent_tools(entry: NamedAgentSettings, settings: AgentSettings, tools: Sequence[BaseTool]) -> list[BaseTool]:
    """Return the tools of a named agent. Its `task` offers its kinds."""
    kinds = settings.subagents.all_kinds()
    offered = {name: kind for name, kind in kinds.items() if not entry.kinds or name in entry.kinds}
    wanted = matching_tools(tools, tool_patterns(entry))
    return [make_task_tool(offered) if tool.name == TASK_TOOL else tool for tool in wanted]


def agent_prompt(entry: NamedAgentSettings, prompt: str) -> str:
    """Return the prompt of a named agent: the system prompt, then its own instructions."""
    return join_parts(prompt, entry.prompt)
