"""Enter a turn: begin it, resume it after a crash, or answer its questions.

The state identifies messages by their event keys, and stores the keys of answers in `answered`. So a turn that is
entered twice resumes where it was, and the model never gets the same message twice.

Repair the state of an interrupted turn.

Every provider answers 400 to tool calls without results. Finished results are kept and missing ones are added as
unknown. Steering messages and the model's partial text are kept too, the text marked as cut off.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Annotated, Any, NotRequired

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, Interrupt, StateSnapshot

from agent.blocks import Approve, Block, File, Plan, Step, Text
from agent.core.context import Turn
from agent.core.event_mapper import end_step, interrupt_question, make_step, presented_files
from agent.core.graphs import Graph
from agent.core.policy import call_key
from agent.core.tool import ToolTraits
from agent.core.user_message import MessageFormatter, format_answer
from agent.permissions.rules import permission_question_id
from agent.policies.mcp import ToolState
from agent.subagents.board import TaskResult
from agent.todos import plan_of

CUT_NOTE = "[interrupted here]"
CUT_KEY = "cut"
UNANSWERED_RESULT = "The person did not answer this question; they wrote something else or stopped the work."
UNKNOWN_RESULT = "This call was interrupted; its outcome is unknown."


async def repair_state(
    graph: Graph, config: RunnableConfig, partial_text: str = "", steering: Sequence[HumanMessage] = ()
) -> None:
    """End the interrupted turn of `config`'s thread, if there is one. `steering` are messages the state may lack."""
    state = await graph.aget_state(config)
    if not state.tasks:
        return
    results = _missing_results(state)
    if results:
        await graph.aupdate_state(config, {"messages": results}, as_node="tools")
    answer = AIMessage(f"{partial_text.rstrip()}\n\n{CUT_NOTE}".lstrip(), additional_kwargs={CUT_KEY: True})
    known = {message.id for message in state.values.get("messages", [])}
    missing = [message for message in steering if message.id not in known]
    await graph.aupdate_state(config, {"messages": [*missing, answer]}, as_node="model")


def _missing_results(state: StateSnapshot) -> list[ToolMessage]:
    """Return one result for each tool call of the last answer: the real one, or an explanation."""
    messages: list[AnyMessage] = state.values.get("messages", [])
    finished = [task.result.get("messages", []) for task in state.tasks if isinstance(task.result, dict)]
    kept = {message.tool_call_id: message for message in chain(messages, *finished) if isinstance(message, ToolMessage)}
    last = next((message for message in reversed(messages) if isinstance(message, AIMessage)), None)
    if last is None or not last.tool_calls or not any(task.name == "tools" for task in state.tasks):
        return []
    text = UNANSWERED_RESULT if state.interrupts else UNKNOWN_RESULT
    return [
        kept.get(str(call["id"])) or ToolMessage(text, tool_call_id=call["id"], name=call["name"], status="error")
        for call in last.tool_calls
    ]


MAX_REMEMBERED_KEYS = 16  # of answers; a turn never has more open questions


def _keep_latest(old: list[str], new: list[str]) -> list[str]:
    return list(dict.fromkeys([*old, *new]))[-MAX_REMEMBERED_KEYS:]


class State(ToolState):
    """The agent's state, with the keys of the latest messages that answered questions, and the mode of the turn."""

    answered: NotRequired[Annotated[list[str], _keep_latest]]
    by: NotRequired[list[str]]  # agent and kind of sub-agent that work: who asked gets the answer
    planning: NotRequired[bool]  # the turn has not yet shown its plan and got a "go"
    cost_bound: NotRequired[dict[str, Any] | None]  # of a plan that got its "go": `agent.spending.CostBound`
    goal: NotRequired[
        dict[str, Any] | None
    ]  # that the turn works for: text, round, and the tokens of the rounds before


@dataclass(frozen=True, slots=True)
class GraphInput:
    """Run the graph with this input (None: resume). `calls` are unfinished or repeated, `files` were presented before,
    and `answered` describes the answered questions if others stay open."""

    input: dict[str, Any] | Command[Any] | None
    calls: Sequence[ToolCall] = ()
    files: Sequence[File] = ()
    answered: str = ""
    plan: Plan | None = None  # that the turn has made
    asked: Collection[str] = ()  # the ids of open interrupts in which the permission policy asked
    finished: Mapping[str, TaskResult] = field(default_factory=dict)  # results by `call_key` that the messages lack
    by: Sequence[str] = ()  # agent and kind of sub-agent of the work that is resumed


@dataclass(frozen=True, slots=True)
class AlreadyFinished:
    """The turn finished earlier, with this answer and these files."""

    answer: AIMessage
    files: Sequence[File] = ()
    plan: Plan | None = None


@dataclass(frozen=True, slots=True)
class QuestionClosed:
    """The answered question is closed; these are still open."""

    open: Sequence[Interrupt]


TurnEntry = GraphInput | AlreadyFinished | QuestionClosed


async def enter_turn(graph: Graph, config: RunnableConfig, turn: Turn, formatter: MessageFormatter) -> TurnEntry:
    """Decide from the checkpoint how to enter this turn. Repairs an older interrupted turn first."""
    if turn.fresh and not turn.answers:
        return GraphInput(_new_input(turn, formatter))
    state = await graph.aget_state(config)
    messages: list[AnyMessage] = state.values.get("messages", [])
    asked = frozenset(permission_question_id(each.id, each.value) for each in state.interrupts) - {""}
    keys = {item.message.key for item in turn.inputs}
    begin = max((index for index, message in enumerate(messages) if message.id in keys), default=-1)
    if begin >= 0 and (answer := _final_answer(messages[begin:])):
        return _finished_entry(messages, answer)
    if begin < 0 and (given := _answer_texts(state, turn)):
        update = {"answered": [*keys]} if keys else None
        return GraphInput(
            Command(resume=given, update=update),
            _repeated_calls(state),
            answered=_answered_summary(state, given),
            plan=_plan_in_turn(messages),
            asked=asked,
            finished=_finished_results(state),
            by=state.values.get("by", ()),
        )
    answered = bool(keys & set(state.values.get("answered", ())))
    if state.tasks and (begin >= 0 or answered):  # not state.next: it omits tasks with saved writes
        return GraphInput(
            None,
            _repeated_calls(state),
            _presented_in_turn(messages[max(begin, 0) :]),
            plan=_plan_in_turn(messages),
            asked=asked,
            finished=_finished_results(state),
            by=state.values.get("by", ()),
        )
    if answered and (answer := _final_answer(messages[-1:])):
        return _finished_entry(messages, answer)
    if state.interrupts and turn.answers:
        return QuestionClosed(state.interrupts)
    if state.tasks:
        await repair_state(graph, config)
    return GraphInput(_new_input(turn, formatter))


def _new_input(turn: Turn, formatter: MessageFormatter) -> dict[str, Any]:
    """Return the input of a new turn. What an earlier turn planned or aimed at no longer binds it."""
    goals = [item.message.text.strip() for item in turn.inputs if item.message.mode == "goal"]
    return {
        "messages": _new_messages(turn, formatter),
        "by": [turn.agent, turn.worker],
        "planning": any(item.message.mode == "plan" for item in turn.inputs),
        "cost_bound": None,
        "goal": {"text": "\n\n".join(goals), "round": 1, "tokens": 0} if goals else None,
    }


def _finished_results(state: StateSnapshot) -> dict[str, TaskResult]:
    """Return the results of tool calls that ended while others of the same message did not."""
    messages = state.values.get("messages", [])
    results = [task.result.get("messages", []) for task in state.tasks if isinstance(task.result, dict)]
    ended = [message for message in chain.from_iterable(results) if isinstance(message, ToolMessage)]
    return {call_key(messages, message.tool_call_id): TaskResult.of_message(message) for message in ended}


def _new_messages(turn: Turn, formatter: MessageFormatter) -> list[HumanMessage]:
    if not turn.inputs:  # clicks on closed questions
        return [HumanMessage(answer.text, id=f"answer:{answer.id}") for answer in turn.answers]
    return [formatter.format_message(item) for item in turn.inputs]


def _answer_texts(state: StateSnapshot, turn: Turn) -> dict[str, str]:
    """Return the answer to each interrupt.

    Other messages are appended to the last answer, but not to an approval, which stays exact.
    """
    asked = {interrupt.id: interrupt_question(interrupt) for interrupt in state.interrupts}
    open_ = {question.id: id for id, question in asked.items()}
    inputs = {item.message.key: item for item in turn.inputs}
    given: dict[str, list[str]] = {}
    for answer in turn.answers:
        item = inputs.pop(answer.key, None)
        if id := open_.get(answer.id):
            given[id] = [format_answer(answer.text, item, asked[id])]
    if last := next((id for id in reversed(given) if not isinstance(asked[id], Approve)), ""):
        given[last] += [format_answer(item.message.text, item, asked[last]) for item in inputs.values()]
    return {id: "\n\n".join(filter(None, texts)) for id, texts in given.items()}


def _answered_summary(state: StateSnapshot, given: Mapping[str, str]) -> str:
    """Return one line for each answer, or "" if no other question stays open."""
    if len(given) == len(state.interrupts):
        return ""
    lines = [
        f"✓ {interrupt_question(each).question} → {given[each.id]}" for each in state.interrupts if each.id in given
    ]
    return "\n".join(lines)


def _presented_in_turn(messages: Sequence[AnyMessage]) -> list[File]:
    """Return the files that the latest turn in these messages presented."""
    return list(presented_files(_latest_turn(messages)))


def _plan_in_turn(messages: Sequence[AnyMessage]) -> Plan | None:
    """Return the plan, if the latest turn in these messages has changed it."""
    turn = _latest_turn(messages)
    before = plan_of(messages[: len(messages) - len(turn)])
    plan = plan_of(turn, before)
    return plan if plan is not before else None


def _latest_turn(messages: Sequence[AnyMessage]) -> Sequence[AnyMessage]:
    """Return what follows the last but one final answer."""
    earlier = [number for number, message in enumerate(messages[:-1], 1) if _final_answer([message])]
    return messages[earlier[-1] if earlier else 0 :]


def recall_blocks(
    messages: Sequence[AnyMessage], keys: Collection[str], tools: Mapping[str, ToolTraits]
) -> Iterator[Block]:
    """Yield the texts and the ended steps of the latest turn, without those that are shown otherwise.

    It began with the first message of `keys`, if that one is present.
    """
    begin = next((number for number, message in enumerate(messages) if message.id in keys), None)
    begun: dict[str, Step] = {}
    for message in _latest_turn(messages) if begin is None else messages[begin:]:
        if isinstance(message, AIMessage) and not message.additional_kwargs.get(CUT_KEY):
            yield Text(message.text, message.id or "")
            begun |= {str(call["id"]): make_step(str(call["id"]), call, tools) for call in message.tool_calls}
        elif isinstance(message, ToolMessage) and tools.get(str(message.name), ToolTraits()).is_step:
            yield end_step(message.tool_call_id, message, begun.get(message.tool_call_id))


def _finished_entry(messages: Sequence[AnyMessage], answer: AIMessage) -> TurnEntry:
    """Return the finished turn; later messages belong to the next one. Retry if its answer was cut off."""
    if answer is messages[-1] and answer.additional_kwargs.get(CUT_KEY):
        return GraphInput({"messages": [RemoveMessage(id=str(answer.id))]})
    turn = messages[: messages.index(answer) + 1]
    return AlreadyFinished(answer, _presented_in_turn(turn), _plan_in_turn(turn))


def _final_answer(messages: Sequence[AnyMessage]) -> AIMessage | None:
    """Return the first message that ends a turn."""
    return next((m for m in messages if isinstance(m, AIMessage) and not m.tool_calls), None)


def _repeated_calls(state: StateSnapshot) -> Sequence[ToolCall]:
    """Return the calls of the last answer if the graph still executes them, or repeats the results of some."""
    if not any(task.name == "tools" for task in state.tasks):
        return ()
    messages = reversed(state.values.get("messages", []))
    return next((message.tool_calls for message in messages if isinstance(message, AIMessage)), ())
