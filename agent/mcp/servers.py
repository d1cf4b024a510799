"""All MCP servers of one configuration: their tools, their calls, and their end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_core.messages import ToolMessage
from langchain_core.tools import ToolException
from langgraph.config import get_config
from langgraph.errors import GraphInterrupt
from langgraph.runtime import get_runtime
from langgraph.types import Interrupt
from pydantic import ValidationError

from agent.core.context import TurnContext
from agent.core.tool import ToolTraits, count_recorded_answers, describe_as
from agent.mcp.bounds import MAX_DESCRIPTION_CHARS, clean_text
from agent.mcp.calls import McpCall, ServerQuestion
from agent.mcp.connection import (
    STILL_STARTING,
    McpCallLost,
    McpConnection,
    McpRefused,
    McpStarting,
    McpUnavailable,
)
from agent.mcp.content import result_text
from agent.mcp.elicitation import Elicitation, ask_for_server
from agent.mcp.names import belongs_to, may_match, tool_name
from agent.mcp.progress import ProgressLine
from agent.mcp.schemas import common_schema
from agent.mcp.tools import SEARCH_TRAITS, TOOL_SEARCH, DynamicTool, make_dynamic_tool
from agent.settings.mcp import McpConfig, McpServerSettings
from agent.settings.mcp_tokens import TokenFolder
from catalogue import N_, LazyText

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult, Tool

log = logging.getLogger(__name__)

MAX_ERROR_CHARS = 2000
UNKNOWN = "its outcome is unknown. Verify what happened before you repeat it"
LOST = f"the connection to the server ended during the call, so {UNKNOWN}"
WAITED = "the call has ended, because this service restarted or a day passed before the person answered"
STRANGE = f"the server's answer is in a form that this client does not understand, so {UNKNOWN}"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a server cannot be used now; `starting` if it has not failed."""

    why: LazyText
    starting: bool = False


@dataclass(slots=True)
class _Listed:
    """The tools of a server, made from one version of its list."""

    version: int
    tools: dict[str, DynamicTool]


class McpServer:
    """One server: its connection, its tools for the agent, and the calls that it works on."""

    def __init__(self, settings: McpServerSettings, tokens: TokenFolder | None = None) -> None:
        self.settings = settings
        self.connection = McpConnection(settings, self._elicit, tokens)
        self._listed = _Listed(0, {})
        self._calls: dict[str, McpCall] = {}

    async def refresh(self) -> Problem | None:
        """Start the server if necessary. Returns why it is not available."""
        return await _problem_of(self.connection.refresh())

    async def refresh_soon(self) -> Problem | None:
        """Start the server beside the caller. Returns why it is not available yet."""
        return await _problem_of(self.connection.refresh_soon())

    @property
    def tools(self) -> dict[str, DynamicTool]:
        """The allowed tools by name, in order. Those of a server that is down stay, so that requests stay the same."""
        if self._listed.version != self.connection.version:
            self._listed = _Listed(self.connection.version, dict(sorted(self._make_tools())))
        return self._listed.tools

    async def close(self) -> None:
        """End all calls and the connection."""
        for key in list(self._calls):
            self._drop(key)
        await self.connection.close()

    def _make_tools(self) -> Iterator[tuple[str, DynamicTool]]:
        allowed, server = self.settings.tools, self.settings.name
        for tool in self.connection.tools:
            if allowed and not any(fnmatchcase(tool.name, pattern) for pattern in allowed):
                continue
            schema = common_schema(tool.input_schema)
            if schema is None:
                why = "its schema is too large, or needs a name that providers refuse"
                log.warning("mcp.tool_left_out server=%s tool=%s reason=%s", server, tool.name, why)
                continue
            hints = tool.annotations
            reads = bool(hints and hints.read_only_hint)
            harmless = reads or bool(hints and hints.idempotent_hint)
            title = describe_as(N_("Using {tool} of {server}"))
            traits = ToolTraits(
                describe=partial(_describe, title, tool.name, server),
                effect="none" if harmless else "once",
                read_only=reads and self.settings.trust_hints,  # a hint is the server's own word
            )
            name = tool_name(server, tool.name)
            description = clean_text(tool.description or tool.title, MAX_DESCRIPTION_CHARS)
            run = partial(self._run, name, tool, harmless)
            yield name, make_dynamic_tool(name, description or tool.name, schema, traits, run)

    async def _run(self, name: str, tool: Tool, harmless: bool, args: dict[str, Any], id: str) -> ToolMessage:
        """Run a call of the model, or continue it with the answer of a person."""
        runtime = get_runtime(TurnContext)
        context: TurnContext = runtime.context
        place = get_config()["configurable"]["checkpoint_ns"]  # of this call, the same when the turn continues
        approval = first if (first := Interrupt.from_ns(None, place).id) in context.asked else ""
        if call := self._calls.get(place):
            call.resume()
        elif count_recorded_answers() > bool(approval):  # a second time, the server could ask something else
            raise ToolException(f"{WAITED}. Make it again." if harmless else f"{WAITED}, so {UNKNOWN}")
        else:
            call = self._calls[place] = McpCall(self.connection, tool.name, args, harmless=harmless)
        call.show_progress(
            ProgressLine(lambda text: runtime.stream_writer({"type": "progress", "call": id, "text": text}))
        )
        keep = False
        try:
            with tell_faults(self.settings, name):
                result = await self._answer_questions(call, context, approval)
        except GraphInterrupt:
            keep = True  # the turn ends; the call waits for the next one
            call.hold(partial(self._drop, place))
            raise
        finally:
            if not keep:
                self._drop(place)
        text = await result_text(result, self.settings.name, context)
        return ToolMessage(text, tool_call_id=id, name=name, status="error" if result.is_error else "success")

    async def _answer_questions(self, call: McpCall, context: TurnContext, approval: str) -> CallToolResult:
        number = 0
        while isinstance(found := await call.next(number), ServerQuestion):
            number += 1
            answer = await ask_for_server(context, self.settings.name, found.params, approval=approval)
            if not found.answer.done():
                found.answer.set_result(answer)
        return found

    async def _elicit(self, params: ElicitRequestParams) -> ElicitResult:
        """Pass a question of the older protocol to its call. It does not say which one it belongs to: with several at
        work nobody is asked, because it could be the wrong person."""
        working = [call for call in self._calls.values() if call.works]
        if len(working) == 1:
            return await working[0].ask(params)
        log.warning("mcp.question_cancelled server=%s calls=%d", self.settings.name, len(working))
        from mcp_types import ElicitResult

        return ElicitResult(action=Elicitation("cancel").action)

    def _drop(self, place: str) -> None:
        if call := self._calls.pop(place, None):
            call.cancel()


@contextmanager
def tell_faults(settings: McpServerSettings, what: str) -> Iterator[None]:
    """Turn the faults of a request into what the model is told."""
    try:
        yield
    except McpCallLost as lost:
        raise ToolException(f"{LOST}. Reason: {lost.fault}; ask it for less" if lost.fault else LOST) from None
    except McpUnavailable as error:
        raise ToolException(f"the server {settings.name} is not available: {error}") from error
    except McpRefused as error:
        raise ToolException(clean_text(error, MAX_ERROR_CHARS)) from error
    except TimeoutError:
        raise ToolException(f"it did not answer within {settings.call_seconds:g} s, so {UNKNOWN}") from None
    except (ValidationError, RuntimeError) as error:  # of the SDK, for content or structures that are not valid
        log.warning("mcp.strange_answer server=%s what=%s problem=%s", settings.name, what, error)
        raise ToolException(STRANGE) from error


async def _problem_of(refresh: Awaitable[None]) -> Problem | None:
    try:
        await refresh
    except McpUnavailable as error:
        return Problem(error.text, isinstance(error, McpStarting))
    return None


def describe_problems(problems: Mapping[str, Problem]) -> str:
    """Tell the model which servers cannot be used, and why."""
    return " ".join(
        f"The MCP server {name} is still starting: its tools are available as soon as it is ready."
        if problem.starting
        else f"The MCP server {name} is down, so its tools cannot be used now. The reason: {problem.why}."
        for name, problem in problems.items()
    )


def _describe(title: Any, tool: str, server: str, args: Mapping[str, Any]) -> str:
    return str(title({"tool": tool, "server": server}))


class McpServers:
    """The servers of one configuration. `start` or a turn starts them, and `close` ends them."""

    def __init__(self, config: McpConfig, tokens: TokenFolder | None = None) -> None:
        self.config = config
        self.servers = [McpServer(each, tokens) for each in config.servers if each.enabled]
        self._adopted: set[McpServer] = set()  # a later configuration ends them
        self._told: dict[tuple[str, bool], set[str]] = {}  # server, and whether it starts → conversations that know it
        self.traits: dict[str, ToolTraits] = {TOOL_SEARCH: SEARCH_TRAITS}  # by name, of all tools that became known

    async def refresh(self) -> dict[str, Problem]:
        """Start all servers at once, and wait as long as a turn may wait for them. Returns name → problem of those that
        are not available."""
        problems = await asyncio.gather(*(server.refresh_soon() for server in self.servers))
        self.traits.update({name: tool.traits for name, tool in self.tools().items()})
        return {
            server.settings.name: problem for server, problem in zip(self.servers, problems, strict=True) if problem
        }

    async def find(self, name: str) -> dict[str, Problem]:
        """Wait until a server has listed this tool, or those that can have it have started or failed: no other one
        delays it. Returns name → problem of those that cannot be used."""
        problems: dict[str, Problem] = {}

        async def refresh(server: McpServer) -> None:
            if problem := await server.refresh():
                problems[server.settings.name] = problem

        owners = [each for each in self.servers if belongs_to(each.settings.name, name)]
        waiting = {asyncio.create_task(refresh(each), name=f"mcp find {name}") for each in owners}
        try:
            while waiting and name not in self.tools():
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
        self.traits.update({known: tool.traits for known, tool in self.tools().items()})
        return problems

    async def start(self) -> None:
        """Start the servers that may have prompts, unless they did before. A turn says what is not available."""
        new = [each for each in self.servers if each.settings.resources and each.connection.is_new]
        await asyncio.gather(*(each.refresh_soon() for each in new))

    async def wait_for(self, names: Collection[str], seconds: float) -> dict[str, Problem]:
        """Give servers so much time to start. Returns name → problem of those that cannot be used then."""

        async def refresh(server: McpServer) -> Problem | None:
            try:
                async with asyncio.timeout(seconds):
                    return await server.refresh()
            except TimeoutError:
                return Problem(LazyText(STILL_STARTING), starting=True)

        wanted = [each for each in self.servers if each.settings.name in names]
        problems = await asyncio.gather(*map(refresh, wanted))
        return {each.settings.name: problem for each, problem in zip(wanted, problems, strict=True) if problem}

    @property
    def names(self) -> list[str]:
        """The names of all servers that are used."""
        return [each.settings.name for each in self.servers]

    def with_resources(self) -> list[McpServer]:
        """Return the servers that say that they have resources, and whose resources may be used."""
        return [each for each in self.servers if each.settings.resources and each.connection.has_resources]

    def without_tools(self, patterns: Sequence[str] = ()) -> list[str]:
        """Return the names of the servers whose tools are not known yet: they are starting, or down. Those that these
        patterns leave out are not named."""
        return [
            name
            for server in self.servers
            if not server.connection.listed and may_match(name := server.settings.name, patterns)
        ]

    @property
    def need_sign_in(self) -> list[str]:
        """The names of the servers that cannot be used until a person signs in."""
        return [server.settings.name for server in self.servers if server.connection.needs_sign_in]

    def note_told(self, conversation: str, problems: Mapping[str, Problem]) -> list[str]:
        """Return which of these servers the conversation does not yet know to be in this state; now it does."""
        states = {(name, problem.starting) for name, problem in problems.items()}
        self._told = {state: self._told.get(state, set()) for state in states}
        untold = sorted(state for state, known in self._told.items() if conversation not in known)
        for state in untold:
            self._told[state].add(conversation)
        return [name for name, _starting in untold]

    def tools(self, patterns: Sequence[str] = ()) -> dict[str, DynamicTool]:
        """Return the known tools by name, in order; those that a pattern matches, if there are patterns."""
        found: dict[str, DynamicTool] = {}
        for server in self.servers:
            for name, tool in server.tools.items():
                if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns):
                    found.setdefault(name, tool)
        return found

    def adopt(self, before: McpServers) -> None:
        """Use the running servers of another configuration that have the same settings here; it no longer ends them."""
        running = {server.settings.name: server for server in before.servers if server.connection.protocol}
        for place, server in enumerate(self.servers):
            found = running.get(server.settings.name)
            if found and found.settings == server.settings:
                self.servers[place] = found
                before._adopted.add(found)

    async def close(self) -> None:
        """End all servers but adopted ones; none starts again."""
        await asyncio.gather(*(server.close() for server in self.servers if server not in self._adopted))
