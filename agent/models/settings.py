"""Model settings. Imports nothing heavy, because the service starts before the agent stack is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.secret import Secret

DEMO_CLASS_PATH = "agent.demo.model:DemoModel"


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """One entry of `models:`. `use` is "package.module:Class"; `options` are more arguments for that class."""

    name: str
    use: str = "langchain_openai:ChatOpenAI"
    model: str = ""
    base_url: str = ""
    api_key: Secret | None = None
    display_name: str = ""
    proxy: str = ""
    ca_file: str = ""
    connect_seconds: float = 10.0
    read_seconds: float = 120.0  # the longest gap within an answer
    retries: int = 4
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The name that people see in /models."""
        return self.display_name or self.name


class AgentConfigError(Exception):
    """The agent's configuration is invalid; the text names the entry and the error."""
