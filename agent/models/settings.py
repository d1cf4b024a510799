"""Model settings. Imports nothing heavy: the ports open before the agent stack loads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.secret import Secret

DEMO_CLASS_PATH = "agent.demo.model:DemoModel"


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """One entry of `models:`. `use` is "package.module:Class"; `options` are further arguments of that class."""

    name: str
    use: str = "langchain_openai:ChatOpenAI"
    model: str = ""
    base_url: str = ""
    api_key: Secret | None = None
    display_name: str = ""
    proxy: str = ""
    ca_file: str = ""
    connect_seconds: float = 10.0
    read_seconds: float = 120.0  # the longest silence inside an answer
    retries: int = 4
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What people see in /models."""
        return self.display_name or self.name


class AgentConfigError(Exception):
    """The configuration of the agent cannot work: the text names the entry and what is wrong with it."""
