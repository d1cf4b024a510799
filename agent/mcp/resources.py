"""Offer the resources of MCP servers as two tools, and their prompts as commands.

A list sends no words of the model to a server; a read sends its address, and asks as a tool of the server does.

The names are the servers' own: a command has them in the letters that platforms allow.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.messages import ToolMessage
from langchain_core.tools import ToolException
from langgraph.runtime import get_runtime

from agent.core.context import TurnContext
from agent.core.tool import ToolTraits, describe_as
from agent.foreign_text import printable_line
from agent.mcp.bounds import clean_text, read_pages
from agent.mcp.connection import McpCallLost, McpConnection, McpRefused, McpUnavailable
from agent.mcp.content import prompt_text, resource_text
from agent.mcp.names import (
    LIST_RESOURCES,
    READ_RESOURCE,
    KnownPrompt,
    PromptError,
    PromptName,
    plain_name,
    server_prefix,
)
from agent.mcp.servers import McpServer, McpServers, tell_faults
from agent.mcp.tools import DynamicTool, make_dynamic_tool
from agent.permissions.rules import Subject
from agent.web.quoting import quote_untrusted
from catalogue import N_, list_items

if TYPE_CHECKING:
    from mcp.client import Client
    from mcp_types import Prompt


MAX_LISTED = 100
MAX_LINE_CHARS = 300
MAX_URI_CHARS = 4000

_LIST_ONE, _LIST_ALL = map(describe_as, (N_("Listing the resources of {server}"), N_("Listing resources")))
LIST_TRAITS = ToolTraits(
    describe=lambda args: (_LIST_ONE if args.get("server") else _LIST_ALL)(args),
    effect="none",
    read_only=True,
    permission="allow",
    way_out="none",
    brings="everything",
)
READ_TRAITS = ToolTraits(
    describe=describe_as(N_("Reading {uri} of {server}")),
    effect="none",
    read_only=True,
    permission="ask",
    subject=Subject("server"),
    way_out="arguments",
    brings="everything",
)
LIST_ABOUT = (
    "List the resources of connected MCP servers (files, records, pages), and the templates of their addresses."
)
READ_ABOUT = "Read a resource of an MCP server by its address, from `mcp_list_resources` or made from a template."


def make_resource_tools(servers: McpServers) -> dict[str, DynamicTool]:
    """Return both tools by name. They are for servers that have resources."""
    server = {"type": "string", "description": "The name of the server."}
    contains = {"type": "string", "description": "Only those whose address, name or description contains this."}
    uri = {"type": "string", "description": "The address of the resource."}

    async def list_them(args: dict[str, Any], call: str) -> ToolMessage:
        chosen = _chosen(servers, str(args.get("server") or ""))
        wanted = str(args.get("contains") or "").casefold()
        texts = await asyncio.gather(*(_describe(each, wanted) for each in chosen))
        return ToolMessage("\n\n".join(texts), tool_call_id=call, name=LIST_RESOURCES)

    async def read(args: dict[str, Any], call: str) -> ToolMessage:
        [chosen] = _chosen(servers, str(args.get("server") or ""), one=True)
        address = str(args.get("uri") or "").strip()
        if not address or len(address) > MAX_URI_CHARS:
            raise ToolException(f"`uri` must be an address of at most {MAX_URI_CHARS} characters")
        context: TurnContext = get_runtime(TurnContext).context
        with tell_faults(chosen.settings, "resources/read"):
            found = await _ask(chosen.connection, lambda client: client.session.read_resource(address))
        text = await resource_text(found.contents, chosen.settings.name, context)
        return ToolMessage(text, tool_call_id=call, name=READ_RESOURCE)

    listing = _schema(required=[], server=server, contains=contains)
    reading = _schema(required=["server", "uri"], server=server, uri=uri)
    return {
        LIST_RESOURCES: make_dynamic_tool(LIST_RESOURCES, LIST_ABOUT, listing, LIST_TRAITS, list_them),
        READ_RESOURCE: make_dynamic_tool(READ_RESOURCE, READ_ABOUT, reading, READ_TRAITS, read),
    }


def _schema(*, required: list[str], **properties: dict[str, str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _chosen(servers: McpServers, name: str, *, one: bool = False) -> list[McpServer]:
    """Return the servers with resources that the agent of this turn may use: the named one, or all. Raises
    ToolException."""
    gate = get_runtime(TurnContext).context.permissions
    usable = [each for each in servers.with_resources() if not gate.hides(server_prefix(each.settings.name))]
    found = [each for each in usable if name in ("", each.settings.name)]
    if not found or (one and not name):
        known = ", ".join(each.settings.name for each in usable) or "none"
        raise ToolException(f"No MCP server with resources is called {name!r}. Those with resources: {known}.")
    return found


async def _describe(server: McpServer, wanted: str) -> str:
    """Return the resources and templates of one server as data of strangers, or why there are none."""
    name = server.settings.name
    try:
        with tell_faults(server.settings, "resources/list"):
            resources = await _list(server.connection, "list_resources", "resources")
            templates = await _list(server.connection, "list_resource_templates", "resource_templates")
    except ToolException as error:
        return f"The resources of {name} cannot be listed: {error}"
    lines = [line for line in _lines(resources, templates) if wanted in line.casefold()]
    more = [f"[{len(lines) - MAX_LISTED} more: use `contains`]"] if len(lines) > MAX_LISTED else []
    return quote_untrusted("mcp-resources", "\n".join([*lines[:MAX_LISTED], *more]) or "(none)", server=name)


def _lines(resources: Sequence[Any], templates: Sequence[Any]) -> Iterator[str]:
    for kind, found in (("", resources), ("template ", templates)):
        for each in found:
            address = str(each.uri_template if kind else each.uri)
            about = [each.title or each.name, each.mime_type or "", each.description or ""]
            line = f"- {kind}{address} ({'; '.join(filter(None, about))})"
            yield " ".join(clean_text(line, MAX_LINE_CHARS + len(address)).split())


async def _list(connection: McpConnection, method: str, field: str) -> list[Any]:
    return await read_pages(
        lambda cursor: _ask(connection, lambda client: getattr(client, method)(cursor=cursor)), field
    )


async def _ask(connection: McpConnection, ask: Callable[[Client], Awaitable[Any]]) -> Any:
    """Return the answer to a request that changes nothing: if the server ended meanwhile, it is made again."""
    async with asyncio.timeout(connection.settings.call_seconds):
        try:
            return await connection.answer(ask)
        except McpCallLost as lost:
            if lost.fault:
                raise
            return await connection.answer(ask)


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
