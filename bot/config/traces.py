"""Read the section `traces:` of config.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from agent.setting import HEADERS, Secret, setting
from bot.config.document import Document
from catalogue import _


@dataclass(frozen=True, slots=True)
class TracesConfig:
    """Traces of what each message brought about, sent by OTLP over HTTP as JSON (docs/operations.md)."""

    endpoint: str = setting(
        "", "where traces go, with its path, such as http://127.0.0.1:4318/v1/traces; empty: there are none"
    )
    headers: Mapping[str, Secret] = field(
        default_factory=dict,
        metadata={"help": "headers of each export, such as `Authorization: $LANGFUSE_AUTH`", **HEADERS},
    )
    service: str = setting("fawn", "`service.name` of the traces, to tell several services apart")
    contents: bool = setting(
        False, "what people, models and tools write goes with the traces, and the ids of people as they are"
    )
    propagate: bool = setting(True, "servers of models and MCP servers get the header `traceparent`")


def check_traces(document: Document, section: Any) -> None:
    """An endpoint has the path at which traces are taken."""
    endpoint = section.get("endpoint") if isinstance(section, dict) else None
    at = ("traces", "endpoint")
    if isinstance(endpoint, str) and endpoint and at not in document.faulty and urlsplit(endpoint).path in ("", "/"):
        address = f"{endpoint.rstrip('/')}/v1/traces"
        document.fault(at, _("names no path"), _("collectors take traces at {address}", address=address))
