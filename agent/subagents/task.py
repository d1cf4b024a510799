"""The tool `task`: give a part of the work to a sub-agent and wait for its result."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import ToolException
from langgraph.errors import GraphRecursionError

from agent.core.context import ToolServices, TurnContext, join_parts
from agent.core.policy import call_key, messages_since_human
from agent.core.tool import (
    TASK_TOOL,
    AgentTool,
    Effect,
    Runtime,
    ToolTraits,
    describe_as,
    make_tool,
    require_background,
)
from agent.models.errors import ModelFailure
from agent.settings.sections import AgentSettings
from agent.settings.subagents import BASH, KindSettings
from agent.spans import SpanKind, open_span
from agent.spending import Meter
from agent.subagents.board import TaskResult
from agent.subagents.callee import CHECKER, callee_context, worker_brief
from agent.subagents.sandboxes import copy_outputs, task_sandbox
from catalogue import N_, _, list_items
from sandbox.base import SandboxError

if TYPE_CHECKING:  # they import the tools
    from agent.core.graphs import Graph
    from agent.subagents.board import RunningTask, TaskBoard, TaskKinds

MAX_CHECK_CHARS = 20_000  # of a result that is checked


@dataclass(frozen=True, slots=True)
class TaskCall:
    """A call of the tool in the conversation. `result` is None until it is in the conversation."""

    key: str
    name: str
    after: tuple[str, ...]
    result: TaskResult | None = None


def make(settings: AgentSettings, services: ToolServices) -> AgentTool | None:
    """Offer it with the kinds of sub-agents that can work here."""
    kinds = settings.subagents.all_kinds()
    if not services.runs_commands and BASH.name not in {kind.name for kind in settings.subagents.kinds}:
        del kinds[BASH.name]
    return make_task_tool(kinds) if settings.subagents.enabled else None


def make_task_tool(kinds: Mapping[str, KindSettings]) -> AgentTool:
    """Return the tool with these kinds."""

    @make_tool(ToolTraits(describe=describe_as(N_("Task: {description}")), effect=_effect, permission="allow"))
    async def task(
        description: Annotated[str, "A unique name of the task in three to six words; people see it."],
        prompt: Annotated[str, "Everything that the sub-agent must know: it sees nothing else of this conversation."],
        kind: Annotated[str, "The kind of sub-agent, from the list above."],
        runtime: Runtime,
        after: Annotated[
            list[str], "Descriptions of tasks whose results it needs; it begins when they have ended."
        ] = [],  # noqa: B006  never changed
        background: Annotated[
            bool, "It works on when you have answered, in a sandbox of its own, and the person gets its result."
        ] = False,
    ) -> str:
        """Give a task to a sub-agent and wait for its result. Tasks that you start in the same message run in
        parallel. Delegate work that has several steps or would fill this conversation with details; do single
        steps yourself. State in the prompt what the result must contain. Kinds:"""
        if kind not in kinds:
            raise ToolException(f"There is no kind {kind!r}. There are {', '.join(kinds)}.")
        key = call_key(runtime.state["messages"], runtime.tool_call_id)
        _check_count(runtime, key)
        if background:
            _check_background(kinds[kind], after)
            return await require_background(runtime).start_agent(key, description, prompt, kind)
        return await _run_task(runtime, description, prompt, kind, after)

    task.description += "".join(f"\n- {kind.name}: {kind.description}" for kind in kinds.values())
    return task


def _effect(args: Mapping[str, Any]) -> Effect:
    """Return what a second run does: a sub-agent goes on where it was, and a background task is begun again."""
    return "once" if args.get("background") else "resumable"


def _check_background(kind: KindSettings, after: Sequence[str]) -> None:
    """Refuse what a background task could not keep."""
    if after:
        raise ToolException(
            "Not started: a background task begins at once, so it cannot come `after` others. Start it without"
            " `background`, or wait for their results and put them into its prompt."
        )
    if kind.verify:
        raise ToolException(
            f"Not started: the results of the kind {kind.name} are checked, which is only done while you wait. Start it"
            " without `background`."
        )


def _check_count(runtime: Runtime, key: str) -> None:
    board: TaskBoard | None = runtime.context.tasks
    if board is None:
        raise ToolException("Sub-agents cannot delegate tasks.")
    calls = [call.key for call in task_calls(messages_since_human(runtime.state["messages"]))]
    if (number := board.number_of(key, calls)) > (limit := board.kinds.settings.per_turn):
        raise ToolException(
            f"Not started: at most {limit} tasks may be started for one request, and this is number {number}. Finish"
            " with the results that you have, and tell the person what is left."
        )


async def _run_task(runtime: Runtime, description: str, prompt: str, kind_name: str, after: Sequence[str]) -> str:
    board: TaskBoard | None = runtime.context.tasks
    messages = runtime.state["messages"]
    kind = board.kinds.find(kind_name) if board else None
    if board is None or kind is None:
        raise ToolException("Sub-agents cannot delegate tasks.")
    key = call_key(messages, runtime.tool_call_id)
    task = board.find(key)
    needed = needed_tasks(task_calls(messages), key, after)
    if board.kinds.settings.overflow == "refuse" and not needed and not board.slots.has_room(board):
        limit = board.kinds.settings.at_once
        raise ToolException(f"At most {limit} tasks may run at once. Start this one when another has ended.")
    missing = {each.key: each for each in needed if each.result is None}
    if missing:
        names = [each.name for each in missing.values()]
        task.show(_("waits for {tasks}", tasks=list_items(_("“{title}”", title=name) for name in names)))
    found = dict(zip(missing, await board.wait_for(task, tuple(missing)), strict=True))
    ended = [(each.name, each.result or found[each.key]) for each in needed]
    for name, result in ended:
        if result.failed:
            raise ToolException(
                f"Not started: it comes after {name!r}, which did not finish: {result.text} Repeat that one first, or"
                " start this one without `after` and say in its prompt what is missing."
            )
    results = [f"## {name}\n{result.text}" for name, result in ended]
    if results:
        prompt = "\n\n".join([prompt, "# Results of the tasks before this one", *results])
    seconds = board.kinds.seconds(kind)
    try:
        async with task.place(seconds):
            task.show("")
            with open_span(SpanKind.TASK, kind.name):
                return await _work(runtime.context, board.kinds, kind, task, _Assignment(key, description, prompt))
    except TimeoutError:
        problem = f"it took longer than {seconds:g} s and was stopped"
    except ModelFailure as error:
        problem = str(error)
    except GraphRecursionError:
        problem = "it used all the steps that it may take"
    raise ToolException(f"The task did not finish: {problem.rstrip('.')}. Its last words: {task.words or '(none)'}")


@dataclass(frozen=True, slots=True)
class _Assignment:
    key: str
    name: str
    prompt: str


async def _work(
    context: TurnContext, kinds: TaskKinds, kind: KindSettings, task: RunningTask, given: _Assignment
) -> str:
    began, meter, own = time.monotonic(), Meter(whole=context.meter), kind.sandbox == "own"
    route = kinds.route(kind, context)
    async with task_sandbox(context, own=own, key=given.key) as sandbox:
        worker = replace(callee_context(context, kind), sandbox=sandbox, route=route, meter=meter, task=task)
        worker.brief = join_parts(worker_brief(kind), worker.skills.brief() if worker.skills else "")
        result = await _run_graph(await kinds.graph(kind), given.prompt, worker, task)
        verdict = "not verified"
        if kind.verify:
            task.show(_("checks the result"))
            question = f"# Task\n{given.prompt}\n\n# Result\n{result[:MAX_CHECK_CHARS]}"
            checker = replace(worker, brief=CHECKER, meter=Meter(whole=meter))
            verdict = await _run_graph(await kinds.graph(kind, "check"), question, checker, task)
            verdict = f"verification {' '.join(verdict.split())}"
        try:
            files = await copy_outputs(sandbox, context.sandbox, given.name) if own else await sandbox.new_files()
        except SandboxError as error:  # the result is worth more than the list of files
            files = [f"unknown, {error}"]
    used = meter.total
    facts = [
        f"{kind.name}: {used.calls} model calls, {used.input + used.output} tokens, {time.monotonic() - began:.0f} s",
        verdict,
        *([f"files: {', '.join(files)}"] if files else []),
    ]
    return f"{result}\n\n[{'; '.join(facts)}]"


async def _run_graph(graph: Graph, prompt: str, context: TurnContext, task: RunningTask) -> str:
    """Run a graph inside the turn's graph, which keeps its checkpoint, and return its last text."""
    task.words = ""
    states = graph.astream({"messages": [HumanMessage(prompt)]}, context=context, stream_mode="values")
    async with aclosing(states):  # type: ignore[type-var]  # an async generator behind the type AsyncIterator
        async for state in states:
            answers = [message for message in state["messages"] if isinstance(message, AIMessage)]
            task.words = answers[-1].text if answers else ""
    return task.words


def task_calls(messages: Sequence[AnyMessage]) -> list[TaskCall]:
    """Return the calls of the tool in a conversation, in order."""
    calls: dict[str, TaskCall] = {}
    latest: dict[str, str] = {}  # call id → key: some servers restart their call ids with every message
    for message in messages:
        if isinstance(message, AIMessage):
            for call in message.tool_calls:
                key = latest[str(call["id"])] = f"{message.id}/{call['id']}"
                if call["name"] == TASK_TOOL:
                    args, after = call["args"], call["args"].get("after")
                    needed = tuple(map(str, after)) if isinstance(after, list) else ()  # a call may be malformed
                    calls[key] = TaskCall(key, str(args.get("description", "")), needed)
        elif isinstance(message, ToolMessage) and (key := latest.get(message.tool_call_id, "")) in calls:
            calls[key] = replace(calls[key], result=TaskResult.of_message(message))
    return list(calls.values())


def needed_tasks(calls: Sequence[TaskCall], key: str, after: Sequence[str]) -> list[TaskCall]:
    """Return the tasks that a call waits for. Raises ToolException for an unknown name or a cycle."""
    others = {call.name: call for call in calls if call.key != key}
    for name in after:
        if name not in others:
            known = ", ".join(repr(each) for each in others) or "none"
            raise ToolException(f"after: there is no task {name!r}. Tasks so far: {known}.")
    names = {call.key: call.name for call in calls}
    waiting, seen = list(after), set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in others:
            if name == names.get(key):
                raise ToolException(f"after: {name!r} would wait for itself. Remove the cycle.")
            continue
        seen.add(name)
        if others[name].result is None:
            waiting += others[name].after
    return [others[name] for name in dict.fromkeys(after)]
