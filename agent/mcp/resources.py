"""The resources of MCP servers as two tools: list them, and read one.

A list sends no words of the model to a server; a read sends its address, and asks as a tool of the server does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.messages import ToolMessage
from langchain_core.tools import ToolException
from langgraph.runtime import get_runtime

from agent.core.context import TurnContext
from agent.core.tool import ToolTraits, describe_as
from agent.mcp.connection import McpCallLost, McpConnection
from agent.mcp.content import resource_text
from agent.mcp.names import LIST_RESOURCES, READ_RESOURCE, server_prefix
from agent.mcp.pages import read_pages
from agent.mcp.schemas import clean_text
from agent.mcp.servers import McpServer, McpServers, tell_faults
from agent.mcp.tools import DynamicTool, make_dynamic_tool
from agent.permissions.rules import Subject
from agent.web.quoting import quote_untrusted
from catalogue import N_

if TYPE_CHECKING:
    from mcp.client import Client

MAX_LISTED = 100
MAX_LINE_CHARS = 300
MAX_URI_CHARS = 4000

LIST_TRAITS = ToolTraits(
    describe=describe_as(N_("Listing the resources of {server}")),
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
