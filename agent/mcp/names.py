"""Names of tools that every provider accepts and that cannot collide."""

from __future__ import annotations

import hashlib
import re

MCP_PREFIX = "mcp__"
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
