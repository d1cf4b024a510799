"""The tasks of a turn: which run, which wait for each other or for a person, and what they returned.

Say how a task of a turn ended.

Places for tasks: a few for each turn, and a number for all turns that is shared fairly.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol, Self

from langchain_core.messages import ToolMessage
from langgraph.errors import GraphBubbleUp, GraphInterrupt
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Interrupt

from agent.core.context import LiveQuestions, TurnContext
from agent.core.event_mapper import interrupt_question
from agent.core.graphs import Graph
from agent.core.policy import ToolCallHandler, ToolCallResult, call_key, turn_context_of
from agent.core.tool import TASK_TOOL
from agent.fair_slots import FairSlots, SlotGroups
from agent.models.loader import LoadedModel
from agent.settings.subagents import KindSettings, SubagentSettings
from catalogue import _


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of a task, or why it did not finish."""

    text: str
    failed: bool = False

    @classmethod
    def of_message(cls, message: ToolMessage) -> Self:
        """Return the result that a message holds."""
        return cls(str(message.content), message.status == "error")


ALL_TURNS = "all turns"


class TaskSlots:
    """Grant at most `per_turn` places to each turn and `live` to all."""

    def __init__(self, per_turn: int, live: int) -> None:
        self._per_turn, self._live = per_turn, live
        self._slots = FairSlots()

    def has_room(self, turn: Hashable) -> bool:
        """Return whether this turn may get a place without waiting for one of its own tasks."""
        return self._slots.has_room({turn: self._per_turn})

    async def acquire(self, turn: Hashable) -> None:
        """Wait for a place."""
        await self._slots.acquire(turn, self._groups(turn))

    def release(self, turn: Hashable) -> None:
        """Return a place."""
        self._slots.release(turn, self._groups(turn))

    def _groups(self, turn: Hashable) -> SlotGroups:
        return {turn: self._per_turn, ALL_TURNS: self._live}


GraphUse = Literal["task", "check", "background"]

SOON_SECONDS = 1.0  # so long a question waits for the calls beside it


class TaskKinds(Protocol):
    """The kinds of sub-agents, as far as tasks use them. `agent.turn.agent_kinds` builds them of policies that import
    this module."""

    @property
    def settings(self) -> SubagentSettings:
        """Their settings and limits."""

    @property
    def slots(self) -> TaskSlots:
        """The places for tasks."""

    def find(self, name: str) -> KindSettings | None:
        """Return the kind of this name."""

    def seconds(self, kind: KindSettings) -> float:
        """Return the timeout of a task."""

    def route(self, kind: KindSettings, context: TurnContext) -> Sequence[LoadedModel]:
        """Return the models of a task, the first choice first."""

    async def graph(self, kind: KindSettings, use: GraphUse = "task") -> Graph:
        """Return the graph that works on tasks of a turn, checks their results, or works in the background."""


@dataclass(eq=False, slots=True)
class RunningTask:
    """A task in progress. `show` tells people what it does now."""

    board: TaskBoard
    show: Callable[[str], None]
    waits_for: tuple[str, ...] = ()  # the keys of other tasks
    calls: int = 0  # its tool calls in progress
    asking: int = 0  # those that wait for a person in this process
    clock: asyncio.Timeout | None = None
    seconds_left: float = 0.0  # when the clock stopped
    has_slot: bool = False
    words: str = ""  # the latest text of its model

    async def wait_for_answer(self, interrupt: Interrupt) -> str | None:
        """Ask the person at once if other tasks or calls are at work. Returns None when none of them is: then the turn
        can end and wait for the answer."""
        board = self.board
        self.asking += 1
        board.changed()
        if board.questions is None or not await board.works_on():
            self.asking -= 1
            return None
        self._pause()
        self.show(_("waits for an answer"))
        answer = await board.questions.ask(interrupt_question(interrupt), board.when_idle())
        if answer is not None:
            await self._continue()
        return answer

    def _pause(self) -> None:
        """Stop the clock and return the place: neither counts while a person thinks."""
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

    kinds: TaskKinds
    questions: LiveQuestions | None
    finished: Mapping[str, TaskResult]
    calls: int = 0  # of the lead, in progress, without those of tasks
    asking: int = 0  # those that wait for a person in this process
    _running: dict[str, RunningTask] = field(default_factory=dict)
    _begun: dict[str, None] = field(default_factory=dict)  # keys of all calls, in order
    _results: dict[str, asyncio.Future[TaskResult | None]] = field(default_factory=dict)
    _deciding: asyncio.Future[None] | None = None  # done when the latest one that asks knows how
    _idle: list[asyncio.Future[None]] = field(default_factory=list)

    @property
    def slots(self) -> TaskSlots:
        """The places for tasks, which all turns share."""
        return self.kinds.slots

    async def wait_for_answer(self, interrupt: Interrupt) -> str | None:
        """Ask the person at once, for the lead, if tasks or calls are at work. Returns None when none of them is."""
        self.asking += 1
        self.changed()
        try:
            if self.questions is None or not await self.works_on():
                return None
            return await self.questions.ask(interrupt_question(interrupt), self.when_idle())
        finally:
            self.asking -= 1

    async def works_on(self) -> bool:
        """Return whether the turn works on while a person thinks. A call that ends soon does not count: the question
        then comes with the turn's end. Questions keep their order."""
        before, mine = self._deciding, asyncio.get_running_loop().create_future()
        self._deciding = mine
        try:
            works = await self._has_work()
            if not works and before and not before.done():
                await asyncio.wait({before})
            return works
        finally:
            if not mine.done():
                mine.set_result(None)

    async def _has_work(self) -> bool:
        if any(not task.asking and not self._is_blocked(task) for task in self._running.values()):
            return True
        if not self.is_moving():
            return False
        idle = self.when_idle()
        await asyncio.wait({idle}, timeout=SOON_SECONDS)
        return not idle.done()

    def begin(self, key: str, show: Callable[[str], None]) -> RunningTask:
        """Note that a task has been called: as the first step of its call, before a call beside it can ask."""
        self._begun[key] = None
        task = self._running[key] = RunningTask(self, show)
        return task

    def end(self, key: str, result: TaskResult | None) -> None:
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

    async def wait_for(self, task: RunningTask, keys: tuple[str, ...]) -> list[TaskResult]:
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

    def is_moving(self) -> bool:
        """Return whether a task or a call is at work, or will be without an answer of a person."""
        return self.calls > self.asking or any(
            (not task.asking or task.calls > task.asking) and not self._is_blocked(task)
            for task in self._running.values()
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

    def _result(self, key: str) -> asyncio.Future[TaskResult | None]:
        if key not in self._results:
            self._results[key] = asyncio.get_running_loop().create_future()
        return self._results[key]


class RunningCallsPolicy:
    """Outermost of a sub-agent's tool policies: the board knows which calls work while another one asks."""

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Count the call while it runs."""
        task = turn_context_of(request).task
        return (
            await _counted(task, task.board, request, handler)
            if isinstance(task, RunningTask)
            else await handler(request)
        )


async def _counted(
    work: RunningTask | TaskBoard, board: TaskBoard, request: ToolCallRequest, handler: ToolCallHandler
) -> ToolCallResult:
    work.calls += 1
    try:
        return await handler(request)
    finally:
        work.calls -= 1
        board.changed()


class TaskPolicy:
    """Outermost of the lead's tool policies: the board learns how each task ended, also one that was refused, and which
    other calls run."""

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Run the call; the result of a task goes to the board, too."""
        board: TaskBoard | None = turn_context_of(request).tasks
        call, messages = request.tool_call, request.state["messages"]
        if board is None:
            return await handler(request)
        if call["name"] != TASK_TOOL:
            return await _counted(board, board, request, handler)
        key = call_key(messages, call["id"])
        write, scope = request.runtime.stream_writer, request.runtime.config["configurable"]["checkpoint_ns"]
        board.begin(key, lambda now: write({"type": "task", "call": call["id"], "scope": scope, "now": now}))
        result: TaskResult | None = TaskResult("The task failed.", failed=True)
        try:
            outcome = await handler(request)
            result = TaskResult.of_message(outcome) if isinstance(outcome, ToolMessage) else TaskResult("")
        except GraphBubbleUp:
            result = None
            raise
        finally:
            board.end(key, result)
        return outcome
