"""Configurations in force, for tests of single parts of the service."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from agent.core.context import ToolServices
from agent.settings.sections import AgentSettings, ContextConfig, ModelRoles, PromptConfig
from bot.config.schema import AccessConfig, ChannelConfig, Config, ServiceLimits
from bot.rights.access import AccessPolicy
from bot.rights.current import Current

OPEN_ACCESS = AccessPolicy(dict.fromkeys(("slack", "telegram", "wall"), AccessConfig(open=True)))
SERVICES = ToolServices(runs_commands=True)


def current_of(limits: ServiceLimits = ServiceLimits(), **access: AccessConfig) -> Current:
    """Return a holder with these limits and the access rules of these channels; no agent is in it yet."""
    channels = tuple(ChannelConfig(name, None, rules) for name, rules in access.items())
    return Current(Config(limits=limits, channels=channels))


def agent_settings(**values: Any) -> AgentSettings:
    """Return settings; each value goes into the section that has a field of its name."""
    sections = {"roles": ModelRoles, "prompt": PromptConfig, "context": ContextConfig}
    made = {
        section: kind(**{field.name: values.pop(field.name) for field in fields(kind) if field.name in values})
        for section, kind in sections.items()
    }
    return AgentSettings(**made, **values)
