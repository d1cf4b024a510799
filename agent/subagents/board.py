"""The tasks of a turn: which run, which wait for each other or for a person, and what they returned."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import ToolMessage
from langgraph.errors import GraphBubbleUp, GraphInterrupt
from langgraph.types import Interrupt

from agent.context import LiveQuestions
from agent.event_mapper import interrupt_question
from agent.policies.base import ToolCallHandler, ToolCallResult, call_key, turn_context_of
from agent.subagents.slots import TaskSlots
from agent.tools.tool import TASK_TOOL
from catalogue import _

if TYPE_CHECKING:  # it imports this module
    from agent.subagents.kinds import SubagentKinds


@dataclass(eq=False, slots=True)
class RunningTask:
    """A task in progress. `show` tells people what it does now."""

    board: TaskBoard
    show: Callable[[str], None]
    waits_for: tuple[str, ...] = ()  # the keys of other tasks
    asking: int = 0  # its questions that wait for a person in this process
    clock: asyncio.Timeout | None = None
    seconds_left: float = 0.0  # when the clock stopped
    has_slot: bool = False
    words: str = ""  # the latest text of its model

    async def wait_for_answer(self, interrupt: Interrupt) -> str | None:
        """Ask the person at once if other tasks are at work. Returns None when none of them is: then the turn can end
        and wait for the answer."""
        board = self.board
        if board.questions is None or not board.is_moving(but=self):
            return None
        self._pause()
        self.show(_("waits for an answer"))
        answer = await board.questions.ask(interrupt_question(interrupt), board.when_idle())
        if answer is not None:
            await self._continue()
        return answer

    def _pause(self) -> None:
        """Stop the clock and return the place: neither counts while a person thinks."""
        self.asking += 1
        if self.clock and (due := self.clock.when()):
            self.seconds_left = due - asyncio.get_running_loop().time()
            self.clock.reschedule(None)
        self.release()
        self.board.changed()

    async def _continue(self) -> None:
        self.asking -= 1
        if not self.asking and self.clock:
            await self.acquire()
            self.clock.reschedule(asyncio.get_running_loop().time() + self.seconds_left)

    async def acquire(self) -> None:
        """Wait for a place."""
        await self.board.slots.acquire(self.board)
        self.has_slot = True

    def release(self) -> None:
        """Return the place, if it has one."""
        if self.has_slot:
            self.has_slot = False
            self.board.slots.release(self.board)

    @asynccontextmanager
    async def place(self, seconds: float) -> AsyncIterator[None]:
        """Hold a place, and limit the time in it. Raises TimeoutError."""
        if not self.board.slots.has_room(self.board):
            self.show(_("waits for a free place"))
        try:
            await self.acquire()
            async with asyncio.timeout(seconds) as self.clock:
                yield
        finally:
            self.release()


@dataclass(eq=False, slots=True)
class TaskBoard:
    """The tasks of one turn. `finished` are the results of tasks that ended before a restart, by `call_key`."""

    kinds: SubagentKinds
    questions: LiveQuestions | None
    finished: Mapping[str, str]
    _running: dict[str, RunningTask] = field(default_factory=dict)
    _begun: dict[str, None] = field(default_factory=dict)  # keys of all calls, in order
    _results: dict[str, asyncio.Future[str | None]] = field(default_factory=dict)
    _idle: list[asyncio.Future[None]] = field(default_factory=list)

    @property
    def slots(self) -> TaskSlots:
        """The places for tasks, which all turns share."""
        return self.kinds.slots

    async def wait_for_answer(self, interrupt: Interrupt) -> str | None:
        """Ask the person at once, for the lead, if tasks are at work. Returns None when none of them is."""
        if self.questions is None or not self.is_moving():
            return None
        return await self.questions.ask(interrupt_question(interrupt), self.when_idle())

    def begin(self, key: str, show: Callable[[str], None]) -> RunningTask:
        """Note that a task has been called: as the first step of its call, before a call beside it can ask."""
        self._begun[key] = None
        task = self._running[key] = RunningTask(self, show)
        return task

    def end(self, key: str, result: str | None) -> None:
        """Note the result of a task; None: it waits for a person, and the next turn continues it."""
        del self._running[key]
        self._result(key).set_result(result)
        self.changed()

    def number_of(self, key: str, calls: Sequence[str]) -> int:
        """Return which of the turn's tasks this is, from 1. `calls` are those in its messages: a summary forgets some,
        and a restart the others."""
        forgotten = [each for each in self._begun if each not in calls]
        return [*forgotten, *calls].index(key) + 1

    def find(self, key: str) -> RunningTask:
        """Return a task that has been called."""
        return self._running[key]

    async def wait_for(self, task: RunningTask, keys: tuple[str, ...]) -> list[str]:
        """Return the results of other tasks. Raises GraphInterrupt if one of them waits for a person."""
        task.waits_for = keys
        self.changed()
        results = []
        for key in keys:
            result = self.finished.get(key)
            if result is None:
                result = await asyncio.shield(self._result(key))
            if result is None:
                raise GraphInterrupt  # unfinished: a later turn runs this call again
            results.append(result)
        return results

    def is_moving(self, but: RunningTask | None = None) -> bool:
        """Return whether a task is at work, or will be without an answer of a person."""
        return any(
            task is not but and not task.asking and not self._is_blocked(task) for task in self._running.values()
        )

    def when_idle(self) -> asyncio.Future[None]:
        """Return a future that is done when no task moves."""
        idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(idle)
        self.changed()
        return idle

    def changed(self) -> None:
        """Look whether tasks still move."""
        if not self.is_moving():
            for idle in self._idle:
                if not idle.done():
                    idle.set_result(None)
            self._idle.clear()

    def _is_blocked(self, task: RunningTask) -> bool:
        return any(key in self._running for key in task.waits_for)

    def _result(self, key: str) -> asyncio.Future[str | None]:
        if key not in self._results:
            self._results[key] = asyncio.get_running_loop().create_future()
        return self._results[key]


class TaskPolicy:
    """Outermost of the lead's tool policies: the board learns how each task ended, also one that was refused."""

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Run the call; the result of a task goes to the board, too."""
        board: TaskBoard | None = turn_context_of(request).tasks
        call, messages = request.tool_call, request.state["messages"]
        if board is None or call["name"] != TASK_TOOL:
            return await handler(request)
        key = call_key(messages, call["id"])
        write, scope = request.runtime.stream_writer, request.runtime.config["configurable"]["checkpoint_ns"]
        board.begin(key, lambda now: write({"type": "task", "call": call["id"], "scope": scope, "now": now}))
        result: str | None = "The task failed."
        try:
            outcome = await handler(request)
            result = str(outcome.content) if isinstance(outcome, ToolMessage) else ""
        except GraphBubbleUp:
            result = None
            raise
        finally:
            board.end(key, result)
        return outcome
