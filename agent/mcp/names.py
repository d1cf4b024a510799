"""Names of tools that every provider accepts and that cannot collide."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

MCP_PREFIX = "mcp__"
LIST_RESOURCES, READ_RESOURCE = "mcp_list_resources", "mcp_read_resource"
RESOURCE_TOOLS = (LIST_RESOURCES, READ_RESOURCE)
MAX_NAME_CHARS = 64  # of OpenAI; Anthropic takes 128
_HASH_CHARS = 6
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]+")


def tool_name(server: str, tool: str) -> str:
    """Return `mcp__server__tool`. A name that had to change ends in a hash of the original."""
    full = f"{MCP_PREFIX}{server}__{tool}"
    name = _FORBIDDEN.sub("_", full)
    # A name with a further `__` could be that of another server's tool.
    if name == full and len(name) <= MAX_NAME_CHARS and "__" not in server and not server.endswith("_"):
        return name
    digest = hashlib.sha256(full.encode()).hexdigest()[:_HASH_CHARS]
    return f"{name[: MAX_NAME_CHARS - _HASH_CHARS - 1]}_{digest}"


def server_prefix(server: str) -> str:
    """Return the beginning of the names of a server's tools."""
    return _FORBIDDEN.sub("_", f"{MCP_PREFIX}{server}__")[: MAX_NAME_CHARS - _HASH_CHARS - 1]


def belongs_to(server: str, tool: str) -> bool:
    """Return whether a tool of this name may be the server's."""
    return tool.startswith(server_prefix(server))


def may_match(server: str, patterns: Sequence[str]) -> bool:
    """Return whether a tool of this server, which is not known yet, may match one of the patterns, if there are any."""
    prefix = server_prefix(server)
    fixed = [re.split(r"[*?\[]", pattern, maxsplit=1)[0] for pattern in patterns]
    return not patterns or any(each.startswith(prefix) or prefix.startswith(each) for each in fixed)
