"""Map LangGraph events to blocks. Summaries and system text never reach the chat, tool results only on request.

A graph that a tool runs is a sub-agent. Its text is for the agent that called it; its steps, files and questions are
shown. Its events carry a namespace, which keeps them apart from those of the lead. The step of a task says what its
sub-agent does now, and is the parent of the steps of the sub-agent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

from langchain_core.messages import AIMessage, AIMessageChunk, ToolCall, ToolMessage
from langgraph.types import Interrupt

from agent.blocks import (
    ALLOW_HERE,
    APPROVAL_OPTIONS,
    THINKING_STEP,
    Approve,
    Ask,
    Block,
    File,
    Notice,
    Plan,
    Step,
    StepState,
    Text,
)
from agent.core.context import TurnContext
from agent.core.policy import DENIED_KEY, TakeBack
from agent.core.tool import TASK_TOOL, ToolTraits, has_failed
from agent.exposure import OUTWARD
from agent.models.control_marks import MarkGate
from agent.models.reasoning import thinking_of
from agent.permissions.invisible import ascii_host, show_line
from agent.permissions.rules import Grant, asked_use, describe_call
from agent.text_cleaning import clean_json
from agent.todos import plan_of
from catalogue import N_, _, ngettext

PATH_PREFIXES = ("/mnt/user-data/", "/mnt/")
DETAIL_ARGUMENTS = ("command", "path", "pattern", "regex", "query", "question", "url", "paths", "files")
MAX_TITLE_CHARS, MAX_DETAIL_CHARS, MAX_THINKING_CHARS, MAX_OUTPUT_CHARS = 80, 200, 2000, 4000
CARRIES_OUT = N_(
    "What is shown here would leave for {to}. Text by strangers may have led to it, so check what it carries."
    " “{option}” covers every later call to {to}."
)
KEEPS = N_(
    "I would read this in later conversations. Text by strangers may have led to it, so check what it says."
    " “{option}” covers every later call of {to}."
)
UNKNOWN_TOOL_TITLE = N_("Using {tool}")


class EventMapper:
    """Maps the events of one turn; keeps what the turn has shown.

    `begun` are steps of sub-agents that an earlier process began: they go on, or their sub-agents begin others.
    """

    def __init__(self, context: TurnContext, traits: Mapping[str, ToolTraits], begun: Sequence[Step] = ()) -> None:
        self.asks: list[Ask | Approve] = []
        self._context = context
        self._traits = traits
        self._needs_sandbox = {name for name, each in traits.items() if each.needs_sandbox}
        self._asking = {name for name, each in traits.items() if not each.is_step}
        self._plan: Plan | None = None
        self._texts: dict[str, str] = {}
        self._part = ""
        self._gate = MarkGate()
        self._called: dict[str, Step] = {}  # steps of calls that the model made; they begin when the call is allowed
        self._steps: dict[str, Step] = {step.id: step for step in begun}
        self._left = set(self._steps)  # of `begun`, those that nothing has told of
        self._lines: dict[str, int] = {}
        self._thinking: Step | None = None  # that is running
        self._thought: list[str] = []
        self._tasks: dict[str, str] = {}  # scope of a task's graphs → the step that shows the task

    def map_event(self, namespace: Sequence[str], mode: str, event: Any) -> Iterator[Block]:
        """Yield the blocks of one event of `astream(stream_mode=["updates", "custom"], subgraphs=True)`.

        `namespace` is empty for the lead's graph.
        """
        scope = "".join(f"{graph}/" for graph in namespace)
        if namespace and (task := self._tasks.get(namespace[0])):
            yield from self._map_task_event(task, scope, mode, event)
        elif mode == "updates":
            yield from self._map_update(scope, event)
        else:
            yield from self._map_custom(scope, event)

    def resume_plan(self, plan: Plan | None) -> Iterator[Plan]:
        """Show the plan that an earlier attempt has made."""
        if plan:
            self._plan = plan
            yield plan

    def _map_task_event(self, task: str, scope: str, mode: str, event: Any) -> Iterator[Block]:
        """Show what a task does now in its step, each of its own steps below, and the files that it presents."""
        match event:
            case Notice() if mode == "custom":
                yield event
            case {"type": "judged", "call": dict(call), "allowed": bool(allowed)} if mode == "custom":
                for step in self._judge(cast(ToolCall, call), scope, task, allowed=allowed):
                    yield step
                    yield self._task_step(task, step.title)
        for node, update in event.items() if mode == "updates" else ():
            messages = [m for part in _update_parts(update) for m in part.get("messages") or ()]
            yield from presented_files(messages)
            if node == "model" and messages and isinstance(messages[-1], AIMessage):
                yield from self._stop_left(scope)
                self.note_calls(messages[-1].tool_calls, scope)
            if node == "tools":
                yield from self._end_calls(messages, scope, task)

    def _task_step(self, task: str, now: str) -> Step:
        known = self._steps.get(task) or Step(task, TASK_TOOL)
        return replace(known, progress=now)

    def _stop_left(self, scope: str) -> Iterator[Step]:
        """Show as stopped what a sub-agent had begun before a restart, and does not take up again."""
        for id in sorted(each for each in self._left if each.startswith(scope)):
            self._left.discard(id)
            yield replace(self._steps[id], state="stopped", progress="")

    def note_calls(self, calls: Sequence[ToolCall], scope: str = "") -> None:
        """Note what the model called: it may be refused, or wait for a person.

        Call ids are unique within their graph only: `scope` tells graphs apart.
        """
        for call in calls:
            step = make_step(f"{scope}{call['id']}", call, self._traits)
            self._called[step.id] = step

    def _judge(self, call: ToolCall, scope: str, parent: str = "", *, allowed: bool) -> Iterator[Step]:
        """Show a call as running once it is allowed. A resumed sub-agent's call is not known before."""
        self.note_calls([call], scope)
        if allowed and call["name"] not in self._asking:
            id_ = f"{scope}{call['id']}"
            step = self._steps[id_] = replace(self._called[id_], parent=parent)
            yield step

    def _map_chunk(self, scope: str, chunk: AIMessageChunk) -> Iterator[Block]:
        for call in chunk.tool_call_chunks:
            if call["name"] in self._needs_sandbox:
                self._context.sandbox.warm()  # starts while the arguments stream: the name comes first
        if not scope and self._context.route and self._context.route[0].settings.show_thinking:
            yield from self._map_thinking(chunk)
        if not scope and (text := clean_json(str(chunk.text))):
            if self._part != (chunk.id or ""):
                self._part, self._gate = chunk.id or "", MarkGate()
            if text := self._gate.take(text):
                self._texts[self._part] = self._texts.get(self._part, "") + text
                yield Text(text, self._part)

    def _map_thinking(self, chunk: AIMessageChunk) -> Iterator[Step]:
        """Show the reasoning of one answer as a step, whose detail is the text."""
        if text := thinking_of(chunk):
            self._thought.append(text)
            if self._thinking is None:
                self._thinking = Step(f"{THINKING_STEP}{chunk.id}", _("Thinking"), thinking=True)
                yield self._thinking
        elif chunk.text or chunk.tool_call_chunks:
            yield from self._end_thinking()

    def _end_thinking(self, state: Literal["done", "stopped"] = "done") -> Iterator[Step]:
        if self._thinking:
            detail = _one_line(clean_json("".join(self._thought)), MAX_THINKING_CHARS)
            yield replace(self._thinking, state=state, detail=detail)
        self._thinking = None
        self._thought.clear()

    def _map_update(self, scope: str, event: Mapping[str, Any]) -> Iterator[Block]:
        for node, update in event.items():
            if node == "__interrupt__":
                yield from () if scope else self.map_interrupts(update)  # the lead's graph repeats those of nested ones
                continue
            messages = [m for part in _update_parts(update) for m in part.get("messages") or ()]
            if node == "model" and messages and isinstance(messages[-1], AIMessage):
                yield from self._map_message(scope, messages[-1])  # others are the rewritten conversation
            if node == "tools":
                yield from self._map_tool_results(scope, messages)

    def _map_message(self, scope: str, message: AIMessage) -> Iterator[Block]:
        part, text = message.id or "", message.text
        if not scope:
            yield from self._end_thinking()
        if not scope and text != self._texts.get(part, ""):
            yield Text(text, part, replace=part in self._texts)
            self._texts[part] = text
        self.note_calls(message.tool_calls, scope)

    def _map_tool_results(self, scope: str, messages: Sequence[Any]) -> Iterator[Block]:
        yield from presented_files(messages)
        plan = self._plan if scope else plan_of(messages, self._plan)
        if plan and plan is not self._plan:
            self._plan = plan
            yield plan
        yield from self._end_calls(messages, scope)

    def _end_calls(self, messages: Iterable[Any], scope: str, parent: str = "") -> Iterator[Step]:
        for message in messages:
            if isinstance(message, ToolMessage) and message.name not in self._asking:
                id_ = f"{scope}{message.tool_call_id}"
                self._left.discard(id_)
                known = self._steps.get(id_) or self._called.get(id_)
                yield replace(end_step(id_, message, known), parent=parent)

    def map_interrupts(self, interrupts: Sequence[Interrupt]) -> Iterator[Ask | Approve]:
        """Yield a question for each interrupt."""
        for interrupt in interrupts:
            ask = interrupt_question(interrupt)
            self.asks.append(ask)
            yield ask

    def _map_custom(self, scope: str, event: object) -> Iterator[Block]:
        match event:
            case AIMessageChunk():
                yield from self._map_chunk(scope, event)
            case Notice():
                yield event
            case TakeBack():
                if not scope:
                    yield from self._end_thinking("stopped")
                if not scope and self._texts.pop(self._part, ""):
                    yield Text("", self._part, replace=True)
            case {"type": "judged", "call": dict(judged), "allowed": bool(allowed)}:
                yield from self._judge(cast(ToolCall, judged), scope, allowed=allowed)
            case {"type": "task", "call": str(call), "scope": str(graph), "now": str(now)}:
                self._tasks[graph] = call
                yield self._task_step(call, now)
            case {"type": "progress", "call": str(call), "text": str(text)} if step := self._steps.get(
                f"{scope}{call}"
            ):
                yield replace(step, progress=_one_line(text, MAX_TITLE_CHARS))
            case {"type": "output", "call": str(call), "text": str(text)}:
                yield from self._map_output(f"{scope}{call}", text)

    def _map_output(self, call: str, text: str) -> Iterator[Step]:
        """Show how many lines a running tool has printed, but not the lines: other people read the chat."""
        step = self._steps.get(call)
        if step:
            lines = self._lines[call] = self._lines.get(call, 0) + text.count("\n")
            progress = ngettext("{n} line of output so far", "{n} lines of output so far", lines)
            yield replace(step, progress=progress)


def presented_files(messages: Iterable[Any]) -> Iterator[File]:
    """Yield the files that tools presented, in order."""
    for message in messages:
        if isinstance(message, ToolMessage) and isinstance(message.artifact, dict):
            yield from (File(file["path"], file["caption"]) for file in message.artifact.get("presented", ()))


def interrupt_question(interrupt: Interrupt) -> Ask | Approve:
    """Return the question of an interrupt. The value of an approval has kind "approve", name, args and detail, or what
    `permission_question` returns."""
    value = interrupt.value if isinstance(interrupt.value, dict) else {"question": interrupt.value}
    if value.get("kind") == "approve":
        name = str(value["name"])
        call = describe_call(name, value["args"])
        approve = Approve(interrupt.id, _("May I run `{name}`?", name=name), str(value.get("detail", "")), call)
        if value.get("grant"):
            approve = _offer_grant(approve, Grant(*value["grant"]), str(value["argument"]), str(value.get(OUTWARD, "")))
            approve = replace(approve, use=asked_use(value))
        return replace(approve, id=f"{interrupt.id}-{approve.call_hash[:16]}")
    options = tuple(map(str, value.get("options") or ()))
    question, free_text = str(value.get("question", "")), bool(value.get("free_text", True))
    personal, context = bool(value.get("personal")), bool(value.get("context"))
    return Ask(interrupt.id, question, options, free_text, personal=personal, context=context)


def _offer_grant(approve: Approve, grant: Grant, argument: str, outward: str = "") -> Approve:
    """Offer to allow later calls, too, and say which ones. `outward` is where the call would carry data to."""
    if outward:
        tool, space, host = outward.partition(" ")
        text = KEEPS if outward == "memory" else CARRIES_OUT
        told = _(text, option=_(ALLOW_HERE), to=show_line(f"{tool}{space}{ascii_host(host)}"))
        return replace(approve, detail=told, grant=grant, option_count=APPROVAL_OPTIONS.index(ALLOW_HERE) + 1)
    text = N_("“{option}” covers every later call of `{tool}`.")
    if argument:
        text = N_("“{option}” covers every later call of `{tool}` with the same `{argument}`.")
    detail = _(text, option=_(ALLOW_HERE), tool=grant.tool, argument=argument)
    return replace(approve, detail=detail, grant=grant, option_count=APPROVAL_OPTIONS.index(ALLOW_HERE) + 1)


def make_step(id: str, call: ToolCall, traits: Mapping[str, ToolTraits]) -> Step:
    """Return the step of a call: what it does in words, and the raw call as its detail."""
    name, args = call["name"], call["args"]
    describe = traits[name].describe if name in traits else None
    title = describe(args) if describe else _(UNKNOWN_TOOL_TITLE, tool=name.replace("_", " "))
    detail = str(args.get("kind") or "") if name == TASK_TOOL else raw_call_line(name, args)  # its title says the rest
    return Step(id, _one_line(title, MAX_TITLE_CHARS), detail=_one_line(detail, MAX_DETAIL_CHARS))


def end_step(id: str, result: ToolMessage, begun: Step | None) -> Step:
    """Return the step with its end; one that nobody saw begin has the tool's name."""
    step = begun or Step(id, _(UNKNOWN_TOOL_TITLE, tool=str(result.name).replace("_", " ")))
    state, output = _end_state(result), clean_json(result.text).strip()
    if len(output) > MAX_OUTPUT_CHARS:
        output = f"…{output[1 - MAX_OUTPUT_CHARS :]}"
    return replace(step, state=state, progress="", output="" if state == "denied" else output)


def _end_state(result: ToolMessage) -> StepState:
    if result.additional_kwargs.get(DENIED_KEY):
        return "denied"
    return "failed" if has_failed(result) or result.status == "error" else "done"


def raw_call_line(name: str, args: Mapping[str, Any]) -> str:
    """Return a call on one line, such as "bash: pip list"."""
    value = next((args[key] for key in DETAIL_ARGUMENTS if args.get(key)), None)
    if value is None:
        value = next((text for text in args.values() if isinstance(text, str) and text.strip()), "")
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = ", ".join(str(item.get("path", item) if isinstance(item, dict) else item) for item in value)
    line = _one_line(str(value), MAX_DETAIL_CHARS)
    return f"{name}: {line}" if line else name


def _one_line(text: str, max_chars: int) -> str:
    line = " ".join(text.split())
    for root in PATH_PREFIXES:
        line = line.replace(root, "")
    return line if len(line) <= max_chars else f"{line[: max_chars - 1]}…"


def _update_parts(update: Any) -> Iterator[Mapping[str, Any]]:
    for part in update if isinstance(update, list) else [update]:
        if isinstance(part, dict):
            yield part
