"""Prompts of MCP servers, which people choose by a command such as `/github:review repo=fawn`.

The names are the servers' own: a command has them in the letters that platforms allow.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agent.foreign_text import printable_line
from agent.mcp.connection import McpCallLost, McpConnection, McpRefused, McpUnavailable
from agent.mcp.content import prompt_text
from agent.mcp.pages import read_pages
from agent.mcp.prompt_names import KnownPrompt, PromptError, PromptName, plain_name
from agent.mcp.schemas import clean_text
from catalogue import N_, list_items

if TYPE_CHECKING:
    from mcp_types import Prompt

    from agent.mcp.servers import McpServers

MAX_PROMPT_CHARS = 20_000
MAX_ARGUMENTS = 20
MAX_NAMED = 30  # in an answer
MAX_WORD_CHARS = 60
MAX_LISTED_CHARS = 100  # of a description
_ARGUMENT = re.compile(r"([\w.-]{1,80})=(.*)", re.DOTALL)


async def expand_prompt(servers: McpServers, name: PromptName, words: str) -> str:
    """Return the text of a prompt with the arguments in a person's words. Raises PromptError."""
    server = next((each for each in servers.servers if each.settings.name == name.server), None)
    if server is None or not server.settings.resources:
        raise PromptError(N_("The prompts of the MCP server “{server}” are not used here."), server=name.server)
    try:
        async with asyncio.timeout(server.settings.start_seconds + server.settings.call_seconds):
            offered = await _list_prompts(server.connection)
            prompt = _choose(offered, name)
            given = read_arguments(_argument_names(prompt), words)
            _check_arguments(prompt, name, given)
            found: Any = await server.connection.answer(
                lambda client: client.session.get_prompt(prompt.name, {**given} or None)
            )
    except McpUnavailable as error:
        text = N_("The MCP server “{server}” is not available: {reason}. Try again later.")
        raise PromptError(text, server=name.server, reason=error.text) from error
    except (McpRefused, McpCallLost, TimeoutError, RuntimeError, ValueError) as error:
        text = N_("The MCP server “{server}” did not give its prompt: {reason}. Check the words behind the command.")
        reason = printable_line(error) or type(error).__name__
        raise PromptError(text, server=name.server, reason=reason) from error
    return clean_text(prompt_text(found.messages), MAX_PROMPT_CHARS)


async def _list_prompts(connection: McpConnection) -> list[Prompt]:
    return await read_pages(
        lambda cursor: connection.answer(lambda client: client.list_prompts(cursor=cursor)), "prompts"
    )


def _choose(offered: Sequence[Prompt], name: PromptName) -> Prompt:
    for each in offered:
        if name.prompt and plain_name(each.name) == name.prompt:
            return each
    if not offered:
        raise PromptError(N_("The MCP server “{server}” has no prompts."), server=name.server)
    known = list_items([_usage(each, name.server) for each in offered[:MAX_NAMED]])
    if not name.prompt:
        raise PromptError(N_("The prompts of the MCP server “{server}”: {known}."), server=name.server, known=known)
    text = N_("The MCP server “{server}” has no prompt “{prompt}”. It has: {known}.")
    raise PromptError(text, server=name.server, prompt=name.prompt, known=known)


def known_prompts(servers: McpServers) -> list[KnownPrompt]:
    """Return the prompts that running servers have listed, once each, as far as a command can name them."""
    found: dict[PromptName, KnownPrompt] = {}
    for server in servers.servers:
        for each in server.connection.prompts:
            name = PromptName(server.settings.name, plain_name(each.name))
            if name.prompt:
                said = printable_line(each.description or each.title or "", MAX_LISTED_CHARS)
                found.setdefault(name, KnownPrompt(name, said, bool(each.arguments)))
    return list(found.values())


def _usage(prompt: Prompt, server: str) -> str:
    """Return how a prompt is written, with the arguments that it needs."""
    needed = [f"{_word(each.name)}=…" for each in (prompt.arguments or ())[:MAX_ARGUMENTS] if each.required]
    return "`" + " ".join([f"/{plain_name(server)}:{plain_name(prompt.name)}", *needed]) + "`"


def _argument_names(prompt: Prompt) -> list[str]:
    return [each.name for each in (prompt.arguments or ())[:MAX_ARGUMENTS]]


def read_arguments(names: Sequence[str], words: str) -> dict[str, str]:
    """Return the arguments in a person's words: `name=value`, with quotes where a value has blanks; other words are the
    next ones in order, and the last one takes the rest."""
    if not names:
        return {}
    try:
        parts = shlex.split(words)
    except ValueError:  # a quote that does not end
        parts = words.split()
    given: dict[str, str] = {}
    rest: list[str] = []
    for part in parts:
        found = _ARGUMENT.fullmatch(part)
        meant = [name for name in names if found and name.casefold() == found[1].casefold()]
        if found and meant:
            given[meant[0]] = found[2]
        else:
            rest.append(part)
    left = [name for name in names if name not in given]
    for number, name in enumerate(left):
        value = " ".join(rest[number:]) if number == len(left) - 1 else " ".join(rest[number : number + 1])
        if value:
            given[name] = value
    return given


def _check_arguments(prompt: Prompt, name: PromptName, given: Mapping[str, str]) -> None:
    """Raise PromptError with what is missing, and how to write it."""
    missing = [each for each in prompt.arguments or () if each.required and not given.get(each.name)]
    if not missing:
        return
    about = [
        f"`{_word(each.name)}`" + (f" ({_word(each.description)})" if each.description else "") for each in missing
    ]
    text = N_("The prompt needs {missing}. Write {usage}.")
    raise PromptError(text, missing=list_items(about), usage=_usage(prompt, name.server))


def _word(text: object) -> str:
    return printable_line(text or "", MAX_WORD_CHARS).replace("`", "'")
