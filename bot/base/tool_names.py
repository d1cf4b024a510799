"""Check the names of tools and skills in a configuration against those that there are."""

from __future__ import annotations

import glob
import importlib
from collections.abc import Iterator, Sequence

from agent.mcp.names import server_prefix
from agent.permissions.rules import RuleText, Verdict, parse_rule, parse_rules
from agent.settings.models import AgentConfigError
from agent.settings.sections import PermissionConfig
from agent.skills.library import installed_names
from agent.turn.tool_names import KnownTools, unknown_rules, unknown_skills, unknown_tool, unknown_tools
from bot.base.skill_library import skill_folders
from bot.config.schema import Config
from bot.config.team import RoleConfig


def check_tool_names(config: Config) -> None:
    """Check what limits, protects or allows tools and skills. Loads the tools: call in a thread.

    Raises AgentConfigError with every fault.
    """
    begins = [server_prefix(server.name) for server in config.mcp.servers]
    begins += [f"acp__{agent.name}__" for agent in config.external_agents]
    tools = KnownTools(importlib.import_module("agent.turn.tool_list").all_tool_names(config.tools), begins)
    faults = [*_tool_faults(config, tools), *_skill_faults(config)]
    if faults:
        first, *others = faults
        raise AgentConfigError(first.place, first.wrong, first.fix, others)


def _tool_faults(config: Config, known: KnownTools) -> Iterator[AgentConfigError]:
    yield from _rule_faults(("permissions",), config.permissions, known)
    for i, role in enumerate(config.team.roles):
        yield from _rule_faults(("team", "roles", i), role, known)
    for i, approval in enumerate(config.team.approvals):
        yield from unknown_rules(("team", "approvals", i, "calls"), parse_rules(ask=approval.calls), known)
    for i, limit in enumerate(config.rate_limits):
        if limit.scope == "tool" and limit.which:
            yield from unknown_tool(("rate_limits", i, "which"), glob.escape(limit.which), known)
    for i, kind in enumerate(config.subagents.kinds):
        yield from unknown_tools(("subagents", "kinds", i, "tools"), kind.tools, known)
    for i, agent in enumerate(config.agents):
        yield from unknown_tools(("agents", i, "tools"), agent.tools, known)


def _rule_faults(
    at: tuple[str | int, ...], rules: PermissionConfig | RoleConfig, known: KnownTools
) -> Iterator[AgentConfigError]:
    texts: dict[Verdict, tuple[RuleText, ...]] = {"deny": rules.deny, "ask": rules.ask, "allow": rules.allow}
    for verdict, given in texts.items():
        yield from unknown_rules((*at, verdict), [parse_rule(verdict, text) for text in given], known)


def _skill_faults(config: Config) -> Iterator[AgentConfigError]:
    asked: dict[tuple[str | int, ...], Sequence[str]] = {
        ("skills", "allow"): config.skills.allow,
        **{("subagents", "kinds", i, "skills"): kind.skills for i, kind in enumerate(config.subagents.kinds)},
        **{("agents", i, "skills"): agent.skills for i, agent in enumerate(config.agents)},
        **{("team", "roles", i, "skills"): role.skills for i, role in enumerate(config.team.roles)},
    }
    if any(asked.values()):
        known = installed_names(skill_folders(config))
        for at, names in asked.items():
            yield from unknown_skills(at, names, known)
