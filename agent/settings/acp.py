"""The section `external_agents:` of config.yaml. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from agent.setting import ENVIRONMENT, TOOL_PART, Secret, setting


@dataclass(frozen=True, slots=True)
class ExternalAgentSettings:
    """One entry of `external_agents:`: a program that speaks the Agent Client Protocol (docs/external-agents.md)."""

    name: str = field(metadata={"help": "the name by which the agent calls it", **TOOL_PART})
    command: str = field(metadata={"help": "the command that starts it in the conversation's sandbox"})
    description: str = setting("", "when the agent should give work to it")
    env: Mapping[str, Secret] = field(
        default_factory=dict,
        metadata={"help": "its environment variables, such as `ANTHROPIC_API_KEY: $ANTHROPIC_API_KEY`", **ENVIRONMENT},
    )
    permission: Literal["ask", "allow", "deny"] = setting(
        "ask", "what it gets when it asks for permission and no rule of `permissions` decides; `ask`: the requester"
    )
    seconds: float = setting(1800.0, "timeout of one call; time in which it waits for a person does not count", ge=1)
    auth_method: str = setting(
        "", "the id of its way to sign in; empty: if it asks for one, those whose variables `env` has are tried"
    )
    mode: str = setting("", "the id of the mode of its sessions (`session/set_mode`); empty: its own default")
