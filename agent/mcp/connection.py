"""One MCP server and the task that owns its connection. Loads the `mcp` SDK.

anyio's cancel scopes belong to a task, so only the owner enters and leaves the client; callers await it. The process of
a stdio server is watched: when it ends, the owner leaves, and the next call starts it again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from agent.foreign_text import printable_line
from agent.late_imports import import_in_thread
from agent.mcp.bounds import MAX_MESSAGE_BYTES, SESSION_UNKNOWN, read_pages
from agent.mcp.process import stdio_parameters
from agent.mcp.progress import ProgressReports, Report
from agent.settings.mcp import McpServerSettings
from agent.settings.mcp_tokens import TokenFile, TokenFolder
from agent.spans import trace_parent
from catalogue import N_, LazyText, LocalizedError
from sandbox.processes import hand_over

if TYPE_CHECKING:
    from mcp.client import Client
    from mcp_types import ElicitRequestParams, ElicitResult, InputRequiredResult, Prompt, Tool

    from agent.mcp.token_auth import StoredTokenAuth
    from agent.mcp.traffic import Traffic

log = logging.getLogger(__name__)

T = TypeVar("T")
PAUSES = (0.0, 5.0, 20.0, 80.0, 300.0)  # seconds after one failure, two in a row, …
FORGET_SECONDS = 900.0  # after so long without a failure, the next one is the first
MAX_TOOLS, MAX_PROMPTS = 500, 100
PROMPTS_SECONDS = 2.0  # at least between two lists of prompts: a server may say without end that they changed
CLOSE_SECONDS = 10.0
ERROR_LINES = 5  # of a server's stderr, for the log
MAX_LINE_BYTES = 1 << 16
CONNECTION_CLOSED = -32000  # JSON-RPC code of the SDK for an answer that never comes
STILL_STARTING = N_("it is still starting")
SESSION_TERMINATED = "Session terminated"  # the HTTP server does not know the session: the call has not run

Elicit = Callable[["ElicitRequestParams"], Awaitable["ElicitResult"]]


class McpUnavailable(LocalizedError):
    """The server cannot be used; the text is for the model and the operator."""


class McpStarting(McpUnavailable):
    """The server cannot be used yet: it is still starting, and has not failed."""


class McpCallLost(Exception):
    """The connection ended during a call, so that its outcome is unknown. `fault` is what the server did wrong: it
    would do so again."""

    def __init__(self, fault: LazyText | None = None) -> None:
        super().__init__(fault)
        self.fault = fault


class McpRefused(Exception):
    """The server answered a call with an error of the protocol, whose text is for the model."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a request to a tool: its result, or what the server needs before (protocol 2026-07-28)."""

    result: Any = None  # a CallToolResult
    needed: InputRequiredResult | None = None


class McpConnection:
    """Starts a server when it is needed, lists its tools, and restarts it after it ended.

    `tools` and `prompts` are the latest known ones, also while the server is down. `elicit` answers questions that a
    server of the older protocol asks during a call. `tokens` are those of people who signed in.
    """

    def __init__(
        self, settings: McpServerSettings, elicit: Elicit | None = None, tokens: TokenFolder | None = None
    ) -> None:
        self.settings = settings
        self.tools: tuple[Tool, ...] = ()
        self.prompts: tuple[Prompt, ...] = ()
        self.version = 0  # changes with the list of tools
        self.has_resources = False  # as the server said when it started
        self.listed = False  # the tools are known, also if there are none
        self.starts = 0
        self.problem: LazyText | None = None  # why the latest start failed
        self.needs_sign_in = False  # that was the problem
        self._tokens = tokens
        self._auth: StoredTokenAuth | None = None  # of the present client
        self._traffic: Traffic | None = None  # of the present client
        self._tokens_at_failure = 0  # the version of their file
        self._elicit = elicit
        self._reports = ProgressReports()
        self._client: Client | None = None
        self._owner: asyncio.Task[None] | None = None
        self._mode: Literal["auto", "legacy"] = "auto"  # legacy: no `server/discover`, at which servers of 2024 end
        self._ended_at_discovery = False
        self._ready = asyncio.Event()
        self._stop = asyncio.Event()
        self._failures, self._failed_at = 0, 0.0  # in a row; a call that is answered ends it
        self._refreshing: asyncio.Task[None] | None = None
        self._refresh_began = 0.0
        self._stale = False  # the server says that its tools have changed
        self._prompts_changed = asyncio.Event()
        self._errors: deque[str] = deque(maxlen=ERROR_LINES)
        self._closed = False

    @property
    def protocol(self) -> str:
        """The version of the protocol, "" without a connection."""
        return str(self._client.protocol_version) if self._client else ""

    @property
    def last_words(self) -> str:
        """The last lines of its stderr since the latest start, in one line."""
        return " | ".join(filter(None, map(printable_line, self._errors)))

    @property
    def is_new(self) -> bool:
        """Whether it has never started, and has not failed so often that only a request for it tries again."""
        return not self.listed and self._failures < len(PAUSES)

    async def refresh(self) -> None:
        """Start the server if necessary, and list its tools if they have changed. Raises McpUnavailable."""
        client = await self._connected()
        if self._stale:
            self._stale = False
            try:
                async with asyncio.timeout(self.settings.start_seconds):
                    await self._list_tools(client)
            except Exception as error:
                self._fail()
                raise McpUnavailable(N_("it does not list its tools: {reason}"), reason=_reason(error)) from error

    async def refresh_soon(self) -> None:
        """Do what `refresh` does beside the caller, who waits as long as a turn may wait. Raises McpUnavailable."""
        if self._client is not None and not self._stale:
            return
        if problem := self._pause():
            raise McpUnavailable(problem)
        loop = asyncio.get_running_loop()
        if self._refreshing is None or self._refreshing.done():
            self._refresh_began = loop.time()
            self._refreshing = asyncio.create_task(self.refresh(), name=f"mcp {self.settings.name} refresh")
            self._refreshing.add_done_callback(_note_end)
        left = 0.0 if self._failures else self._refresh_began + self.settings.wait_seconds - loop.time()
        await asyncio.wait({self._refreshing}, timeout=max(0.0, left))
        if self._refreshing.done():
            self._refreshing.result()
        elif self._client is None:
            if self._failures and self.problem:
                raise McpUnavailable(self.problem)
            raise McpStarting(STILL_STARTING)

    async def request(self, tool: str, arguments: dict[str, Any], report: Report | None = None, **more: Any) -> Outcome:
        """Send one `tools/call`; `report` gets the progress of the server. Raises what `answer` raises."""
        types = await import_in_thread("mcp_types")
        with self._reports.hear(report) as meta:
            if parent := trace_parent():
                meta["traceparent"] = parent  # SEP-414 of MCP: in `_meta`, whatever the transport
            more |= {"meta": meta} if meta else {}
            found = await self.answer(
                lambda client: client.session.call_tool(tool, arguments, allow_input_required=True, **more)
            )
        return Outcome(needed=found) if isinstance(found, types.InputRequiredResult) else Outcome(result=found)

    async def answer(self, ask: Callable[[Client], Awaitable[T]]) -> T:
        """Have the server answer one request, and start it if necessary. Raises McpUnavailable if the request has not
        reached it, McpCallLost if that is unknown, and McpRefused."""
        shared = await import_in_thread("mcp.shared.exceptions")
        for attempt in (1, 2):
            client = await self._connected()
            try:
                found = await ask(client)
            except shared.MCPError as error:
                gone = error.code == SESSION_UNKNOWN and "session" in error.message.lower()
                if (gone or error.message == SESSION_TERMINATED) and attempt == 1:
                    await self._end(client)
                    continue
                if problem := self._note_refusal():
                    await self._end(client)
                    raise McpUnavailable(problem) from error
                if error.code != CONNECTION_CLOSED:
                    raise McpRefused(error.message) from error
                self._fail()
                fault = self._fault()
                await self._end(client)
                raise McpCallLost(fault) from error
            self._failures = 0
            return found
        raise McpUnavailable(N_("it ends every session at once"))

    async def close(self) -> None:
        """End the connection for good."""
        self._closed = True
        self._stop.set()
        if self._refreshing:
            self._refreshing.cancel()
        if self._owner:
            await asyncio.wait({self._owner}, timeout=CLOSE_SECONDS)
            self._owner.cancel()

    async def _connected(self) -> Client:
        if self._closed:
            raise McpUnavailable(N_("the configuration has changed"))
        if self._client is None:
            if self._owner is None or self._owner.done():
                if problem := self._pause():
                    raise McpUnavailable(problem)
                self._stop, self._ready = asyncio.Event(), asyncio.Event()
                self._owner = asyncio.create_task(self._own(), name=f"mcp {self.settings.name}")
            waiting = asyncio.create_task(self._ready.wait(), name=f"mcp {self.settings.name} ready")
            try:
                await asyncio.wait({waiting, self._owner}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiting.cancel()
        if self._client is None:
            raise McpUnavailable(self.problem or LazyText(N_("it ended at once")))
        return self._client

    async def _own(self) -> None:
        """Hold the connection until it ends. Never raises: `problem` says what happened."""
        self.starts += 1
        await self._hold()
        if self._ended_at_discovery and not self._closed:
            self._mode, self._stop = "legacy", asyncio.Event()  # the end of the first process is none of the second
            await self._hold()
            self._mode = self._mode if self.problem is None else "auto"

    async def _hold(self) -> None:
        self._errors.clear()
        self._ended_at_discovery = False
        seconds = self.settings.start_seconds
        try:
            async with asyncio.timeout(seconds) as limit, AsyncExitStack() as stack:
                client = await stack.enter_async_context(await self._make_client(stack))
                await self._list_tools(client)
                limit.reschedule(None)
                self._client, self.problem, self.needs_sign_in = client, None, False
                self.has_resources = client.server_capabilities.resources is not None
                log.info("mcp.ready server=%s protocol=%s tools=%d", self.settings.name, self.protocol, len(self.tools))
                self._ready.set()
                await self._serve(client)
        except Exception as error:  # noqa: BLE001  whatever a transport raises
            if self._client is None:
                late = isinstance(error, TimeoutError)
                refused = isinstance(_cause(error), (await import_in_thread("mcp.shared.exceptions")).MCPError)
                refused &= not (self._closed or self.listed or self._fault() or self._note_refusal())
                if refused and self._mode == "auto":
                    self._ended_at_discovery = True
                    log.info("mcp.old server=%s reason=%s", self.settings.name, _reason(error))
                    return
                too_late = LazyText(N_("it did not start within {n:g} s"), n=seconds)
                self.problem = self._note_refusal() or self._fault() or (too_late if late else LazyText(_reason(error)))
                self._fail()
            problem = self.problem or _reason(error)
            log.warning("mcp.failed server=%s problem=%s stderr=%s", self.settings.name, problem, self.last_words)
        finally:
            self._client = None

    def _fault(self) -> LazyText | None:
        return self._traffic.fault if self._traffic else None

    def _fail(self) -> None:
        now = time.monotonic()
        self._failures = self._failures + 1 if now - self._failed_at < FORGET_SECONDS else 1
        self._failed_at = now

    def _pause(self) -> LazyText | None:
        """Return why the server is not started now, None if it may be."""
        self._forget_failures_before_sign_in()
        pause = PAUSES[min(self._failures, len(PAUSES)) - 1] if self._failures else 0.0
        if self._client is not None or time.monotonic() - self._failed_at >= pause:
            return None
        return LazyText(N_("it failed {n} times in a row ({reason})"), n=self._failures, reason=self.problem)

    def _note_refusal(self) -> LazyText | None:
        """Return why the server refuses the tokens of a sign-in, None if it does not."""
        problem = self._auth.problem if self._auth else None
        self.needs_sign_in = bool(self._auth and self._auth.needs_sign_in)
        self._tokens_at_failure = self._tokens_version()
        return problem

    def _forget_failures_before_sign_in(self) -> None:
        if self.needs_sign_in and self._tokens_version() != self._tokens_at_failure:
            self._failures = 0

    def _tokens_version(self) -> int:
        return TokenFile(self._tokens, self.settings).version() if self._tokens else 0

    async def _end(self, client: Client) -> None:
        """Leave this client; a newer one stays."""
        if self._client is client and self._owner:
            self._client = None
            self._stop.set()
            await asyncio.wait({self._owner}, timeout=CLOSE_SECONDS)

    async def _make_client(self, stack: AsyncExitStack) -> AbstractAsyncContextManager[Client]:
        sdk, types = await import_in_thread("mcp.client"), await import_in_thread("mcp_types")
        watching = await import_in_thread("agent.mcp.traffic")
        traffic = self._traffic = watching.Traffic(self._note_change, self._stop.set, self._reports.note)
        transport: Any
        if self.settings.url:
            signing = await import_in_thread("agent.mcp.token_auth")
            self._auth = signing.stored_token_auth(self.settings, self._tokens)
            http = await signing.http_client(self.settings, self._auth, traffic.note_fault)
            await stack.enter_async_context(http)
            transport = (await import_in_thread("mcp.client.streamable_http")).streamable_http_client(
                self.settings.url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES
            )
        else:
            parameters = await stdio_parameters(self.settings)
            stdio = await import_in_thread("agent.mcp.stdio")
            errors = await stack.enter_async_context(_lines_of_stderr(self._errors.append))
            transport = stdio.stdio_transport(parameters, errors, traffic)

        async def answer(_: object, params: ElicitRequestParams) -> ElicitResult:
            found: ElicitResult = types.ElicitResult(action="cancel")
            return await self._elicit(params) if self._elicit else found

        client: AbstractAsyncContextManager[Client] = sdk.Client(
            watching.watch_traffic(transport, traffic),
            mode=self._mode,
            elicitation_callback=answer,
            client_info=types.Implementation(name="fawn", version="1"),
            cache=None,
        )
        return client

    async def _serve(self, client: Client) -> None:
        """Keep the list of prompts until the connection ends."""
        listing = asyncio.create_task(self._keep_prompts(client), name=f"mcp {self.settings.name} prompts")
        try:
            await self._stop.wait()
        finally:
            listing.cancel()
            await asyncio.wait({listing})

    async def _keep_prompts(self, client: Client) -> None:
        """List the prompts, now and after each change. A server that fails at it keeps those that are known."""
        if not self.settings.resources or client.server_capabilities.prompts is None:
            return
        self._prompts_changed.set()
        while await self._prompts_changed.wait():
            self._prompts_changed.clear()
            try:
                async with asyncio.timeout(self.settings.start_seconds):
                    found: list[Prompt] = await read_pages(
                        lambda cursor: client.list_prompts(cursor=cursor), "prompts", MAX_PROMPTS
                    )
                self.prompts = tuple(found[:MAX_PROMPTS])
            except Exception as error:  # noqa: BLE001  whatever the SDK raises for an answer
                log.warning("mcp.no_prompts server=%s problem=%s", self.settings.name, _reason(error))
            await asyncio.sleep(PROMPTS_SECONDS)

    def _note_change(self, what: str) -> None:
        if what == "prompts":
            self._prompts_changed.set()
        else:
            self._stale = True

    async def _list_tools(self, client: Client) -> None:
        found: list[Tool] = await read_pages(lambda cursor: client.list_tools(cursor=cursor), "tools", MAX_TOOLS)
        self.listed = True
        if (tools := tuple(found[:MAX_TOOLS])) != self.tools:
            self.tools = tools
            self.version += 1


@asynccontextmanager
async def _lines_of_stderr(note: Callable[[str], None]) -> AsyncIterator[Any]:
    """Open a pipe for a process, and log its lines: this terminal belongs to the console."""
    reading, writing = os.pipe()
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), hand_over(os.fdopen(reading, "rb", 0))
    )

    async def read() -> None:
        while data := await reader.read(MAX_LINE_BYTES):
            for line in data.decode("utf-8", "replace").splitlines():
                note(line[:300])
                log.debug("mcp.stderr line=%s", line)

    task = asyncio.create_task(read(), name="mcp stderr")
    try:
        with os.fdopen(writing, "w") as errors:
            yield errors
    finally:
        await asyncio.wait({task}, timeout=1.0)  # the last words of a process that ended
        task.cancel()
        transport.close()


def _note_end(refreshing: asyncio.Task[None]) -> None:
    """Look at the error of a refresh that nobody waited for: asyncio would print it otherwise."""
    if not refreshing.cancelled():
        refreshing.exception()


def _cause(error: BaseException) -> BaseException:
    """Return the first cause of an error that anyio has wrapped."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _reason(error: BaseException) -> str:
    cause = _cause(error)
    return printable_line(cause) or type(cause).__name__
