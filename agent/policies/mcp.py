"""Give the model the tools of MCP servers, all of them or those that `tool_search` has promoted."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NotRequired

from langchain.agents import AgentState
from langchain.agents.middleware.types import ToolCallRequest
from langgraph.config import get_config

from agent.blocks import Notice
from agent.mcp.names import MCP_PREFIX
from agent.mcp.servers import McpServers
from agent.mcp.tools import PROMOTED_KEY, TOOL_SEARCH, DynamicTool, make_tool_search, promote
from agent.permissions.rules import PermissionGate
from agent.policies.base import (
    ModelCallHandler,
    ModelCallRequest,
    ModelCallResponse,
    ToolCallHandler,
    ToolCallResult,
    change_request,
    turn_context_of,
)
from catalogue import N_, _

log = logging.getLogger(__name__)

NOT_AVAILABLE = N_("The MCP server “{server}” is not available. I continue without it.")
NEEDS_SIGN_IN = N_(
    "The MCP server “{server}” needs a sign-in. I continue without it. An operator can run `fawn mcp login {server}`."
)


class ToolState(AgentState[Any]):
    """The state of an agent that finds its tools with `tool_search`."""

    promoted: NotRequired[Annotated[list[str], promote]]


class McpPolicy:
    """The tools come last in a request, and promoted ones in the order of their promotion: what a provider has cached
    of the tools before them stays valid. Outside of the permission policy, which hides denied ones."""

    def __init__(self, servers: McpServers, patterns: Sequence[str] = ()) -> None:
        self._servers = servers
        self._patterns = patterns
        self._searches: tuple[tuple[int, ...], DynamicTool] | None = None  # made once for the same tools

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Call the model with the tools of the servers."""
        problems = await self._servers.refresh()
        for name in self._servers.note_told(get_config()["configurable"]["thread_id"], problems):
            log.warning("mcp.unavailable server=%s problem=%s", name, problems[name])
            sentence = NEEDS_SIGN_IN if name in self._servers.need_sign_in else NOT_AVAILABLE
            request.runtime.stream_writer(Notice("mcp", _(sentence, server=name), kept=True))
        tools = self._allowed(request.runtime.context.permissions)
        if not tools:
            return await handler(request)
        offered: list[DynamicTool] = list(tools.values())
        if sum(tool.tokens for tool in offered) > self._servers.config.defer_tokens:
            promoted: Sequence[str] = request.state.get(PROMOTED_KEY) or ()  # type: ignore[assignment]  # in ToolState
            offered = [self._search(tools), *(tools[name] for name in promoted if name in tools)]
        return await handler(change_request(request, tools=[*request.tools, *offered]))

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Find the tool of the call, so that all other policies know it."""
        name = request.tool_call["name"]
        if request.tool is None and (name.startswith(MCP_PREFIX) or name == TOOL_SEARCH):
            tools = self._allowed(turn_context_of(request).permissions)
            if name not in tools and name != TOOL_SEARCH:  # after a restart the servers have not started yet
                await self._servers.find(name)
                tools = self._allowed(turn_context_of(request).permissions)
            found = self._search(tools) if name == TOOL_SEARCH else tools.get(name)
            if found:
                request = request.override(tool=found)
        return await handler(request)

    def _allowed(self, gate: PermissionGate) -> dict[str, DynamicTool]:
        return {name: tool for name, tool in self._servers.tools(self._patterns).items() if not gate.hides(name)}

    def _search(self, tools: Mapping[str, DynamicTool]) -> DynamicTool:
        key = tuple(map(id, tools.values()))  # alive as long as the search, which holds them
        if self._searches is None or self._searches[0] != key:
            self._searches = key, make_tool_search(tools)
        return self._searches[1]
