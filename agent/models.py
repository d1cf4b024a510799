"""Models by class path, and the cheap stream for OpenAI-compatible ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.conversation import Secret


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
