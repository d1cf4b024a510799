"""Names of tools that every provider accepts and that cannot collide.

Name the prompts of MCP servers in commands. Imports nothing heavy.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from catalogue import LocalizedError

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


class PromptError(LocalizedError):
    """A prompt cannot be used; the text says why, and what to write."""


@dataclass(frozen=True, slots=True)
class PromptName:
    """A prompt as a command names it: `prompt` is "" where the prompts of the server are asked for."""

    server: str
    prompt: str


@dataclass(frozen=True, slots=True)
class KnownPrompt:
    """A prompt that a server has listed, with the first words of its description."""

    name: PromptName
    description: str
    has_arguments: bool

    @property
    def command(self) -> str:
        """The command, in the letters that every platform's list of commands has."""
        return f"{plain_name(self.name.server)}_{self.name.prompt}"


def find_prompt(command: str, servers: Iterable[str]) -> PromptName | None:
    """Return the prompt of one of these servers that a command names, as `server:prompt` or `server_prompt`.

    Of several servers whose names begin it, the longest counts.
    """
    server, colon, prompt = command.partition(":")
    for name in sorted(servers, key=lambda each: -len(plain_name(each))):
        plain = plain_name(name)
        if colon and plain_name(server) == plain:
            return PromptName(name, plain_name(prompt))
        if not colon and (rest := plain_name(command).removeprefix(f"{plain}_")) != plain_name(command):
            return PromptName(name, rest)
    return None


def plain_name(name: str) -> str:
    """Return a name in the letters that the commands of every platform have."""
    return re.sub(r"[^a-z0-9]+", "_", name.casefold()).strip("_")
