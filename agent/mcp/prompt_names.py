"""Name the prompts of MCP servers in commands. Imports nothing heavy."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from catalogue import LocalizedError


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
