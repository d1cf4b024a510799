"""The section `traces:` of config.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.setting import Secret, setting


@dataclass(frozen=True, slots=True)
class TracesConfig:
    """Traces of what each message brought about, sent by OTLP over HTTP as JSON (docs/operations.md)."""

    endpoint: str = setting(
        "", "where traces go, with its path, such as http://127.0.0.1:4318/v1/traces; empty: there are none"
    )
    headers: Mapping[str, Secret] = field(
        default_factory=dict, metadata={"help": "headers of each export, such as `Authorization: $LANGFUSE_AUTH`"}
    )
    service: str = setting("fawn", "`service.name` of the traces, to tell several services apart")
    contents: bool = setting(
        False, "what people, models and tools write goes with the traces, and the ids of people as they are"
    )
    propagate: bool = setting(True, "servers of models and MCP servers get the header `traceparent`")
