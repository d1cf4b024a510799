"""Give the model the tools of MCP servers, all of them or those that `tool_search` has promoted."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Annotated, NotRequired

from langchain_core.messages import ToolMessage
from langgraph.config import get_config
from langgraph.prebuilt.tool_node import ToolCallRequest

from agent.blocks import Notice
from agent.core.graphs import AgentState
from agent.core.policy import (
    ModelCallHandler,
    ModelCallRequest,
    ModelCallResponse,
    ToolCallHandler,
    ToolCallResult,
    turn_context_of,
)
from agent.mcp.names import MCP_PREFIX, RESOURCE_TOOLS, server_prefix
from agent.mcp.resources import make_resource_tools
from agent.mcp.servers import McpServers, Problem, describe_problems
from agent.mcp.tools import PROMOTED_KEY, TOOL_SEARCH, DynamicTool, make_tool_search, promote
from agent.permissions.rules import PermissionGate
from agent.reach import matches_any
from catalogue import N_, _

log = logging.getLogger(__name__)

SEARCH_WAIT_SECONDS = 10.0  # for servers that are starting
NOT_AVAILABLE = N_("The MCP server “{server}” is not available. I continue without it.")
STARTING = N_("The MCP server “{server}” is still starting. I begin without it; its tools join as soon as it is ready.")
NEEDS_SIGN_IN = N_(
    "The MCP server “{server}” needs a sign-in. I continue without it. An operator can run `fawn mcp login {server}`."
)


class ToolState(AgentState):
    """The state of an agent that finds its tools with `tool_search`."""

    promoted: NotRequired[Annotated[list[str], promote]]


class McpPolicy:
    """The tools come last in a request, and promoted ones in the order of their promotion: what a provider has cached
    of the tools before them stays valid. Outside of the permission policy, which hides denied ones."""

    def __init__(self, servers: McpServers, patterns: Sequence[str] = ()) -> None:
        self._servers = servers
        self._patterns = patterns
        self._resource_tools = make_resource_tools(servers)
        servers.traits |= {name: tool.traits for name, tool in self._resource_tools.items()}
        self._searches: tuple[object, DynamicTool] | None = None  # made once for the same tools and servers

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Call the model with the tools of the servers."""
        problems = await self._servers.refresh()
        for name in self._servers.note_told(get_config()["configurable"]["thread_id"], problems):
            log.warning("mcp.unavailable server=%s problem=%s", name, problems[name].why)
            request.runtime.stream_writer(self._notice(name, problems[name]))
        gate = request.runtime.context.permissions
        tools, starting = self._allowed(gate), self._starting(gate)
        resources = self._resources(gate)
        if not (tools or starting or resources):
            return await handler(request)
        offered: list[DynamicTool] = list(tools.values())
        if sum(tool.tokens for tool in offered) > self._servers.config.defer_tokens:
            promoted: Sequence[str] = request.state.get(PROMOTED_KEY) or ()
            offered = [self._search(gate), *(tools[name] for name in promoted if name in tools)]
        elif starting:
            offered = [self._search(gate), *offered]
        return await handler(request.override(tools=[*request.tools, *resources.values(), *offered]))

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Find the tool of the call, so that all other policies know it. Say so if its server cannot be used."""
        name, gate = request.tool_call["name"], turn_context_of(request).permissions
        if request.tool is not None:
            return await handler(request)
        if name == TOOL_SEARCH:
            return await handler(request.override(tool=self._search(gate)))
        if name in RESOURCE_TOOLS:
            if not self._servers.with_resources():  # after a restart none has started yet
                await self._servers.wait_for(
                    [each.settings.name for each in self._servers.servers], SEARCH_WAIT_SECONDS
                )
            found = self._resources(gate).get(name)
            return await handler(request.override(tool=found) if found else request)
        if name.startswith(MCP_PREFIX) and not gate.hides(name):
            known = self._servers.tools(self._patterns)
            problems = {} if name in known else await self._servers.find(name)  # after a restart none has started yet
            if found := self._servers.tools(self._patterns).get(name):
                return await handler(request.override(tool=found))
            if problems and matches_any(name, self._patterns):
                call = request.tool_call
                return ToolMessage(describe_problems(problems), tool_call_id=call["id"], name=name, status="error")
        return await handler(request)

    def _resources(self, gate: PermissionGate) -> dict[str, DynamicTool]:
        """Return the tools for resources, where a server has some. They are few, so they are never deferred."""
        if not self._servers.with_resources():
            return {}
        return {
            name: tool
            for name, tool in self._resource_tools.items()
            if matches_any(name, self._patterns) and not gate.hides(name)
        }

    def _notice(self, server: str, problem: Problem) -> Notice:
        if problem.starting:
            return Notice("mcp", _(STARTING, server=server))
        sentence = NEEDS_SIGN_IN if server in self._servers.need_sign_in else NOT_AVAILABLE
        return Notice("mcp", _(sentence, server=server), kept=True)

    def _starting(self, gate: PermissionGate) -> list[str]:
        """Return the servers whose tools are not known yet, without those that this agent may not use."""
        return [name for name in self._servers.without_tools(self._patterns) if not gate.hides(server_prefix(name))]

    def _allowed(self, gate: PermissionGate) -> dict[str, DynamicTool]:
        return {name: tool for name, tool in self._servers.tools(self._patterns).items() if not gate.hides(name)}

    def _search(self, gate: PermissionGate) -> DynamicTool:
        tools, starting = self._allowed(gate), self._starting(gate)

        async def wait() -> tuple[Mapping[str, DynamicTool], str]:
            problems = await self._servers.wait_for(starting, SEARCH_WAIT_SECONDS)
            return self._allowed(gate), "".join(
                f"\n{describe_problems({name: each})}" for name, each in problems.items()
            )

        key = (
            id(gate) if starting else 0,
            *map(id, tools.values()),
            *starting,
        )  # alive as long as the search holds them
        if self._searches is None or self._searches[0] != key:
            self._searches = key, make_tool_search(tools, starting, wait if starting else None)
        return self._searches[1]
