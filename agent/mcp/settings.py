"""The section `mcp:` of config.yaml. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from agent.setting import Secret, setting


@dataclass(frozen=True, slots=True, repr=False)
class McpOAuthSettings:
    """How this service gets a token for an HTTP server, as a client of its own (client credentials)."""

    client_id: str = setting("", "id of the client; empty: no OAuth")
    client_secret: Secret | None = setting(None, "secret of the client")
    issuer: str = setting("", "URL of the authorization server: the secret is sent to no other one")
    scope: str = setting("", "scopes to ask for, separated by blanks")


@dataclass(frozen=True, slots=True, repr=False)  # the environment and the headers may contain secrets
class McpServerSettings:
    """One entry of `mcp.servers`, or of `mcpServers`, where the name is the key."""

    name: str = field(metadata={"help": "the name in `mcp__NAME__TOOL`"})
    type: Literal["", "stdio", "http", "streamable-http"] = setting("", "only for `mcpServers` of other programs")
    command: str = setting("", "the program of a server that runs on this machine (stdio)")
    args: tuple[str, ...] = setting((), "its arguments")
    env: Mapping[str, str] = field(
        default_factory=dict,
        metadata={
            "help": "its environment; from the service's own it gets only HOME, LOGNAME, PATH, SHELL, TERM, USER"
        },
    )
    cwd: str = setting("", "its working directory", path=True)
    sandbox: bool = setting(
        False, "it runs in bubblewrap: it sees the system's programs, `read` and, writable, `cwd`, and has no network"
    )
    read: tuple[str, ...] = setting((), "with `sandbox`: folders that it may read", path=True)
    network: bool = setting(False, "with `sandbox`: it has the network of this machine")
    url: str = setting("", "URL of a streamable-HTTP server")
    token: Secret | None = setting(None, "sent to `url` as `Authorization: Bearer TOKEN`")
    headers: Mapping[str, str] = field(default_factory=dict, metadata={"help": "more headers of each request"})
    oauth: McpOAuthSettings = setting(McpOAuthSettings(), "for servers that ask for OAuth")
    tools: tuple[str, ...] = setting((), "names or patterns of its tools that the agent may use; empty: all")
    start_seconds: float = setting(30.0, "how long a turn waits for the server to start", ge=1)
    call_seconds: float = setting(
        120.0, "timeout of one call; the time in which a person is asked does not count", ge=1
    )
    enabled: bool = setting(True, "false: the server is not used")


@dataclass(frozen=True, slots=True)
class McpConfig:
    """Servers of the Model Context Protocol, whose tools the agent gets (docs/mcp.md)."""

    servers: tuple[McpServerSettings, ...] = setting((), "the servers, described below")
    defer_tokens: int = setting(
        2000, "tools that would take more tokens than this are found with `tool_search` instead of sent", ge=0
    )
