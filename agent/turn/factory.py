"""Build the agent from its settings: models, prompt, tools and policies.

Importing this module loads the agent stack, which takes more than a second: import it in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict

from langchain_core.tools import BaseTool

from agent.core.context import ToolServices, TransactionRunner, read_prompt
from agent.core.graphs import Graph, build_graph
from agent.core.tool import ToolTraits, traits_of
from agent.core.user_message import MessageFormatter
from agent.mcp.servers import McpServers
from agent.memory.extraction import FactExtractor
from agent.models.loader import LoadedModel, load_model
from agent.models.traffic import ModelTraffic
from agent.policies.goal import NEXT_ROUND
from agent.policies.mcp import McpPolicy
from agent.policies.plan_mode import ASK_TO_GO_ON, SUBMIT_PLAN
from agent.reach import Reach
from agent.settings.models import DEMO_CLASS_PATH, NO_SUCH_MODEL, AgentConfigError, ModelSettings
from agent.settings.sections import AgentSettings
from agent.skills.library import SkillLibrary
from agent.spending import LEAD
from agent.turn.agent_kinds import (
    AgentProfile,
    LeadPolicies,
    SubagentKinds,
    agent_prompt,
    agent_tools,
    check_agents,
    tool_patterns,
)
from agent.turn.chains import lead_policies
from agent.turn.checkpointer import LatestCheckpointer
from agent.turn.resume import State
from agent.turn.title import TitleMaker
from agent.turn.tool_list import make_tools
from agent.turn.turn import Agent
from catalogue import N_, LazyText


async def build_agent(
    models: Sequence[ModelSettings],
    settings: AgentSettings,
    database: TransactionRunner,
    services: ToolServices,
    tools: Sequence[BaseTool] | None = None,
) -> Agent:
    """Build the agent; without a model, the built-in demo answers. Raises AgentConfigError.

    By default it gets the tools that its settings and services allow.
    """
    checkpointer = LatestCheckpointer(database)
    await checkpointer.create_tables()
    entries = tuple(models) or (ModelSettings("demo", DEMO_CLASS_PATH, display_name=N_("Built-in demo")),)
    tools = make_tools(settings, services) if tools is None else tools
    return await asyncio.to_thread(_assemble_agent, entries, settings, checkpointer, tools, services.skills)


def _assemble_agent(
    entries: Sequence[ModelSettings],
    settings: AgentSettings,
    checkpointer: LatestCheckpointer,
    tools: Sequence[BaseTool],
    skills: SkillLibrary | None,
) -> Agent:
    traffic = ModelTraffic(settings.calls, tell_pause=settings.tell_pause)
    models = {entry.name: LoadedModel(entry, load_model(entry), traffic) for entry in entries}
    roles = settings.roles
    for role, value in asdict(roles).items():
        for name in [value] if isinstance(value, str) else value:
            if name and name not in models:
                raise AgentConfigError(("roles", role), LazyText(NO_SUCH_MODEL, model=name, models=[*models]))
    lead = roles.lead or entries[0].name
    formatter = MessageFormatter(settings.time_zone, skills)
    summary_model = models[roles.summary] if roles.summary else None
    evaluator = models[roles.evaluator] if roles.evaluator else None
    check_agents(settings, models)

    servers = McpServers(settings.mcp, settings.tokens) if settings.mcp.servers else None

    def policies_of(name: str = LEAD, patterns: Sequence[str] = ()) -> LeadPolicies:
        return LeadPolicies(settings, name, McpPolicy(servers, patterns) if servers else None)

    def make_graph(own_tools: Sequence[BaseTool], of: LeadPolicies) -> Graph:
        chain = lead_policies(
            of.settings, summary_model, evaluator, formatter, of.name, of.mcp, of.max_tokens, of.answer
        )
        return build_graph(own_tools, chain, State, checkpointer)

    prompt = read_prompt(settings.prompt)
    profiles = {"": AgentProfile(make_graph(tools, policies_of()), prompt)}
    for each in settings.agents:
        graph = make_graph(agent_tools(each, settings, tools), policies_of(each.name, each.tools))
        reach = Reach().narrowed(tool_patterns(each))
        profiles[each.name] = AgentProfile(graph, agent_prompt(each, prompt), each.model, reach)
    return Agent(
        profiles,
        models,
        (lead, *roles.fallback),
        checkpointer,
        formatter,
        {tool.name: traits_of(tool) for tool in tools}
        | dict.fromkeys((SUBMIT_PLAN, ASK_TO_GO_ON, NEXT_ROUND), ToolTraits(asks=True)),
        TitleMaker(models[roles.title] if roles.title else None),
        FactExtractor([models[roles.memory or lead], *models.values()]),
        SubagentKinds(settings, models, summary_model, tools, make_graph, servers),
        models[roles.vision] if roles.vision else None,
        servers,
    )
