"""The sections `subagents:` and `agents:` of config.yaml. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from agent.setting import NAME, setting

FILE_TOOLS = ("bash", "read_file", "write_file", "str_replace", "ls", "glob", "grep", "present_files")


@dataclass(frozen=True, slots=True)
class KindSettings:
    """One entry of `subagents.kinds`: a kind of sub-agent."""

    name: str = field(
        metadata={"help": "the name that the agent chooses; one of a built-in kind replaces that kind", **NAME}
    )
    description: str = setting("", "when the agent should choose this kind")
    prompt: str = setting("", "what the sub-agent is told about its role, before its task")
    model: str = setting("", "its model; empty: the model that delegates")
    tools: tuple[str, ...] = setting((), "the tools it has, such as `read_file` or `mcp__github__*`; empty: all")
    skills: tuple[str, ...] = setting((), "the skills it may use; empty: those of the agent that delegates")
    max_model_calls: int = setting(0, "model calls of one task; 0: `subagents.max_model_calls`", ge=0)
    seconds: float = setting(0.0, "timeout of one task; 0: `subagents.seconds`", ge=0)
    sandbox: Literal["shared", "own"] = setting(
        "shared",
        "`shared`: the conversation's sandbox and folders; `own`: an empty sandbox for each task, whose outputs are"
        " copied to the conversation's",
    )
    verify: bool = setting(False, "a second pass of the sub-agent checks each result")
    output_schema: Mapping[str, Any] = field(
        default_factory=dict, metadata={"help": "JSON schema of the result; without it, the result is text"}
    )


GENERAL_PURPOSE = KindSettings(
    "general-purpose", "Any task that can be described on its own. Has your tools but `task`, and only reads memory."
)
BASH = KindSettings("bash", "Commands and files: programs, builds, conversions, searches in files.", tools=FILE_TOOLS)


@dataclass(frozen=True, slots=True)
class SubagentSettings:
    """Agents that the agent starts for parts of its work, with the tool `task`."""

    enabled: bool = setting(True, "the agent may delegate tasks to sub-agents")
    per_turn: int = setting(20, "tasks that the agent may start for one request", ge=1)
    at_once: int = setting(3, "tasks of one turn that run at once", ge=1)
    overflow: Literal["queue", "refuse"] = setting(
        "queue", "a task above `at_once`: `queue`: it waits for a place; `refuse`: the agent is told to do it later"
    )
    live: int = setting(100, "tasks of all turns that run at once; turns with fewer tasks go first", ge=1)
    seconds: float = setting(900.0, "timeout of one task; time in which it waits for a person does not count", ge=1)
    max_model_calls: int = setting(150, "model calls of one task", ge=1)
    max_tokens: int = setting(2_000_000, "input and output tokens of one task", ge=1000)
    kinds: tuple[KindSettings, ...] = setting(
        (), "kinds of sub-agents beside `general-purpose` and `bash`, described below"
    )

    def all_kinds(self) -> dict[str, KindSettings]:
        """Return the built-in and the configured kinds by name."""
        return {kind.name: kind for kind in (GENERAL_PURPOSE, BASH, *self.kinds)}


@dataclass(frozen=True, slots=True)
class NamedAgentSettings:
    """One entry of `agents:`: an agent that people choose with `/agents`."""

    name: str = field(metadata={"help": "the name that `/agents` uses", **NAME})
    description: str = setting("", "what `/agents` shows about it")
    prompt: str = setting("", "its instructions, after the system prompt")
    model: str = setting("", "its model, unless `/model` chose another one; empty: `roles.lead`")
    tools: tuple[str, ...] = setting((), "the tools it has, such as `read_file` or `mcp__github__*`; empty: all")
    kinds: tuple[str, ...] = setting((), "the kinds of sub-agents it may start; empty: all")
    skills: tuple[str, ...] = setting((), "the skills it may use; empty: those of `skills.allow`")
