"""The section `mcp:` of config.yaml. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from agent.setting import ENVIRONMENT, HEADERS, TOOL_PART, Secret, setting


@dataclass(frozen=True, slots=True, repr=False)
class McpOAuthSettings:
    """The client of this service: for client credentials or, with `auth: oauth`, for the sign-in of a person."""

    client_id: str = setting("", "id of the client; empty: no client credentials, and a sign-in registers a client")
    client_secret: Secret | None = setting(None, "secret of the client")
    issuer: str = setting("", "URL of the authorization server: the secret is sent to no other one")
    scope: str = setting("", "scopes to ask for, separated by blanks")
    redirect_uri: str = setting(
        "", "for a sign-in: the redirect address of the client; empty: `http://127.0.0.1:PORT/callback`, any port"
    )


@dataclass(frozen=True, slots=True, repr=False)  # the environment and the headers may contain secrets
class McpServerSettings:
    """One entry of `mcp.servers`, or of `mcpServers`, where the name is the key."""

    name: str = field(metadata={"help": "the name in `mcp__NAME__TOOL`", **TOOL_PART})
    type: Literal["", "stdio", "http", "streamable-http"] = setting("", "only for `mcpServers` of other programs")
    command: str = setting("", "the program of a server that runs on this machine (stdio)")
    args: tuple[str, ...] = setting((), "its arguments")
    env: Mapping[str, str] = field(
        default_factory=dict,
        metadata={
            "help": "its environment; from the service's own it gets only HOME, LOGNAME, PATH, SHELL, TERM, USER",
            **ENVIRONMENT,
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
    headers: Mapping[str, str] = field(
        default_factory=dict, metadata={"help": "more headers of each request", **HEADERS}
    )
    auth: Literal["", "oauth"] = setting(
        "", "oauth: a person signs in with `fawn mcp login NAME`, as they may where nothing else is configured"
    )
    oauth: McpOAuthSettings = setting(McpOAuthSettings(), "for servers that ask for OAuth")
    tools: tuple[str, ...] = setting((), "names or patterns of its tools that the agent may use; empty: all")
    resources: bool = setting(True, "false: its resources and prompts are not used")
    start_seconds: float = setting(30.0, "timeout of its start, and of each list of its tools", ge=1)
    wait_seconds: float = setting(
        2.0, "how long a turn waits for its first start; after that, its tools join a later step of the turn", ge=0
    )
    call_seconds: float = setting(
        120.0, "timeout of one call; the time in which a person is asked does not count", ge=1
    )
    trust_hints: bool = setting(
        False, "its tools that say that they only read (`readOnlyHint`) may run while the agent plans (`/plan`)"
    )
    enabled: bool = setting(True, "false: the server is not used")

    @property
    def allows_sign_in(self) -> bool:
        """Whether requests use the tokens of a person's sign-in: over HTTP, without other credentials."""
        others = self.token or self.oauth.client_id or any(name.lower() == "authorization" for name in self.headers)
        return bool(self.url) and (self.auth == "oauth" or not others)


@dataclass(frozen=True, slots=True)
class McpConfig:
    """Servers of the Model Context Protocol, whose tools the agent gets (docs/mcp.md)."""

    servers: tuple[McpServerSettings, ...] = setting((), "the servers, described below")
    defer_tokens: int = setting(
        2000, "tools that would take more tokens than this are found with `tool_search` instead of sent", ge=0
    )
