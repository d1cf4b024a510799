"""Build a graph for each kind of sub-agent, and the agents that talk to people."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from langchain_core.tools import BaseTool

from agent.core.context import TurnContext, join_parts
from agent.core.graphs import Graph, build_graph
from agent.core.policy import ModelPolicy
from agent.core.tool import TASK_TOOL
from agent.mcp.servers import McpServers
from agent.models.loader import LoadedModel
from agent.policies.mcp import McpPolicy, ToolState
from agent.reach import Reach, matches_any
from agent.settings.models import NO_SUCH_MODEL, AgentConfigError
from agent.settings.sections import AgentSettings
from agent.settings.subagents import KindSettings, NamedAgentSettings
from agent.spending import LEAD
from agent.subagents.board import GraphUse, RunningCallsPolicy, TaskSlots
from agent.subagents.structured import StructuredAnswerPolicy
from agent.subagents.task import make_task_tool
from agent.turn.chains import worker_policies
from catalogue import N_, LazyText


@dataclass(frozen=True, slots=True)
class LeadPolicies:
    """What the policies of an agent with a conversation of its own need to know."""

    settings: AgentSettings
    name: str
    mcp: McpPolicy | None
    max_tokens: int = 0
    answer: Sequence[ModelPolicy] = ()


class SubagentKinds:
    """All kinds of sub-agents of one configuration, and the places for their tasks."""

    def __init__(
        self,
        settings: AgentSettings,
        models: Mapping[str, LoadedModel],
        summary_model: LoadedModel | None,
        tools: Sequence[BaseTool],
        make_lead: Callable[[Sequence[BaseTool], LeadPolicies], Graph],
        mcp: McpServers | None = None,
    ) -> None:
        self._make_lead = make_lead
        self.settings = settings.subagents
        self.slots = TaskSlots(self.settings.at_once, self.settings.live)
        self._agent_settings = settings
        self._models = models
        self._summary_model = summary_model
        self._tools = tools
        self._mcp = mcp
        self._kinds = self.settings.all_kinds()
        self._graphs: dict[tuple[str, GraphUse], asyncio.Task[Graph]] = {}
        for number, kind in enumerate(self.settings.kinds):
            at = ("subagents", "kinds", number)
            if kind.model and kind.model not in models:
                raise AgentConfigError(at, LazyText(NO_SUCH_MODEL, model=kind.model, models=[*models]))
            if TASK_TOOL in kind.tools:
                wrong = LazyText(N_("a sub-agent cannot use {tool!r}"), tool=TASK_TOOL)
                raise AgentConfigError(at, wrong, LazyText(N_("remove it from `tools`")))

    def find(self, name: str) -> KindSettings | None:
        """Return the kind of this name."""
        return self._kinds.get(name)

    def seconds(self, kind: KindSettings) -> float:
        """Return the timeout of a task."""
        return kind.seconds or self.settings.seconds

    def route(self, kind: KindSettings, context: TurnContext) -> Sequence[LoadedModel]:
        """Return the models of a task: its own model first, if the requester may use it, then those of the turn."""
        if not kind.model or not context.may_use_model(kind.model):
            return context.route
        own = self._models[kind.model]
        return [own, *(entry for entry in context.route if entry.settings.name != kind.model)]

    async def graph(self, kind: KindSettings, use: GraphUse = "task") -> Graph:
        """Return the graph that works on tasks of a turn, checks their results, or works in the background."""
        key = (kind.name, use)
        if key not in self._graphs:
            build = asyncio.to_thread(self._build, kind, use)
            self._graphs[key] = asyncio.create_task(build, name=f"subagent-graph {kind.name}")
        return await asyncio.shield(self._graphs[key])

    def _build(self, kind: KindSettings, use: GraphUse) -> Graph:
        calls = kind.max_model_calls or self.settings.max_model_calls
        settings = replace(self._agent_settings, max_model_calls=calls)
        mcp = McpPolicy(self._mcp, kind.tools) if self._mcp else None
        tools = [tool for tool in matching_tools(self._tools, kind.tools) if tool.name != TASK_TOOL]
        answer = (StructuredAnswerPolicy(kind.output_schema),) if kind.output_schema and use != "check" else ()
        if use == "background":
            return self._make_lead(tools, LeadPolicies(settings, kind.name, mcp, self.settings.max_tokens, answer))
        chain = worker_policies(settings, self._summary_model, kind.name, self.settings.max_tokens, mcp)
        chain = replace(chain, model=(*answer, *chain.model), tool=(RunningCallsPolicy(), *chain.tool))
        return build_graph(tools, chain, ToolState)


def matching_tools(tools: Sequence[BaseTool], patterns: Sequence[str]) -> list[BaseTool]:
    """Return the tools whose names match one of the patterns; all without patterns."""
    return [tool for tool in tools if matches_any(tool.name, patterns)]


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
