"""Calls of tools in progress. A call may wait for a person, also when its turn has ended to wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.late_imports import import_in_thread
from agent.mcp.connection import McpCallLost, McpConnection, McpUnavailable, Outcome
from agent.mcp.elicitation import Elicitation
from agent.mcp.progress import ProgressLine
from catalogue import N_

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult

MAX_ROUNDS = 10  # in which a server asks before it does its work
ROUND_SECONDS = 0.2  # before a round without a question
HOLD_SECONDS = 24 * 3600.0  # how long a call waits for its turn to come back


@dataclass(frozen=True, slots=True)
class ServerQuestion:
    """A question of the server: its parameters in JSON, and where the answer goes."""

    params: Mapping[str, Any]
    answer: asyncio.Future[Elicitation]


class McpCall:
    """One call of a tool, in a task of its own. `questions` are all that the server asked, in order: a turn that
    continues asks the answered ones again, and gets the recorded answers."""

    def __init__(self, connection: McpConnection, tool: str, arguments: dict[str, Any], *, harmless: bool) -> None:
        self.line: ProgressLine | None = None  # of the step in the present turn
        self.questions: list[ServerQuestion] = []
        self._connection = connection
        self._tool, self._arguments, self._harmless = tool, arguments, harmless
        self._asked = asyncio.Event()
        self._clock = asyncio.timeout(connection.settings.call_seconds)
        self._task = asyncio.create_task(self._run(), name=f"mcp {connection.settings.name} {tool}")
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def works(self) -> bool:
        """Whether the server works on it now, rather than a person."""
        return not self._task.done() and all(question.answer.done() for question in self.questions)

    async def next(self, number: int) -> ServerQuestion | CallToolResult:
        """Wait for the question of this number, or for the result. Raises what `McpConnection.request` raises, and
        TimeoutError."""
        while len(self.questions) <= number and not self._task.done():
            self._asked.clear()
            asked = asyncio.create_task(self._asked.wait(), name="mcp question")
            try:
                await asyncio.wait({asked, self._task}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                asked.cancel()
        return self.questions[number] if len(self.questions) > number else self._task.result()

    async def ask(self, params: ElicitRequestParams) -> ElicitResult:
        """Have the person asked; the time in which they think does not count."""
        types = await import_in_thread("mcp_types")
        loop = asyncio.get_running_loop()
        question = ServerQuestion(params.model_dump(mode="json", by_alias=True), loop.create_future())
        left = (self._clock.when() or loop.time()) - loop.time()
        self._clock.reschedule(None)
        self.questions.append(question)
        self._asked.set()
        answer = await question.answer
        self._clock.reschedule(loop.time() + left)
        content = dict(answer.content) if answer.action == "accept" and params.mode == "form" else None
        result: ElicitResult = types.ElicitResult(action=answer.action, content=content)
        return result

    def show_progress(self, line: ProgressLine | None) -> None:
        """Show the progress of the server in this line from now on, or nowhere."""
        if self.line:
            self.line.end()
        self.line = line

    def hold(self, expired: Callable[[], None]) -> None:
        """Wait for the next turn."""
        self.show_progress(None)
        self._expiry = asyncio.get_running_loop().call_later(HOLD_SECONDS, expired)

    def resume(self) -> None:
        """Note that a turn has come back."""
        if self._expiry:
            self._expiry.cancel()

    def cancel(self) -> None:
        """Give the call up."""
        self.show_progress(None)
        self.resume()
        self._task.cancel()
        if self._task.done() and not self._task.cancelled():
            self._task.exception()  # asyncio would print it otherwise

    async def _run(self) -> CallToolResult:
        types = await import_in_thread("mcp_types")
        async with self._clock:
            more: dict[str, Any] = {}
            for _ in range(MAX_ROUNDS):
                outcome = await self._send(more)
                if outcome.needed is None:
                    result: CallToolResult = outcome.result
                    return result
                responses = {}
                for key, request in (outcome.needed.input_requests or {}).items():
                    if not isinstance(request, types.ElicitRequest):
                        raise McpUnavailable(
                            N_("it asks for {method}, which this service does not offer"), method=request.method
                        )
                    responses[key] = await self.ask(request.params)
                more = {"input_responses": responses or None, "request_state": outcome.needed.request_state}
                if not responses:
                    await asyncio.sleep(ROUND_SECONDS)
        raise McpUnavailable(N_("it asks one question after the other"))

    async def _send(self, more: Mapping[str, Any]) -> Outcome:
        try:
            return await self._connection.request(self._tool, self._arguments, self._report, **more)
        except McpCallLost as lost:
            if lost.fault or not self._harmless:
                raise
            return await self._connection.request(self._tool, self._arguments, self._report, **more)

    def _report(self, params: Mapping[str, Any]) -> None:
        if self.line:
            self.line.note(params)
