"""Enter a turn: begin it, resume it after a crash, or answer its questions.

Every message has its event key as id in the state, and an answer leaves its key behind (`answered`), so the same turn
entered twice goes on where it was and never asks the model the same thing again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, NotRequired

from langchain.agents import AgentState
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, Interrupt, StateSnapshot

from agent.blocks import File
from agent.context import Answer, Turn, TurnContext
from agent.event_mapper import interrupt_question, presented_files
from agent.repair import CUT_KEY, repair_state
from agent.user_message import MessageFormatter, format_body

Graph = CompiledStateGraph[Any, TurnContext, Any, Any]


MAX_REMEMBERED_KEYS = 16  # answers; more are never open at once


def _keep_latest(old: list[str], new: list[str]) -> list[str]:
    return list(dict.fromkeys([*old, *new]))[-MAX_REMEMBERED_KEYS:]


class State(AgentState[Any]):
    """The agent's state, and the keys of the latest messages that were answers to questions."""

    answered: NotRequired[Annotated[list[str], _keep_latest]]


@dataclass(frozen=True, slots=True)
class GraphInput:
    """Run the graph with this input (None: go on where it stopped). `calls` are the tool calls that are under way,
    `files` were handed over before, `answered` tells which questions were answered while others stay open."""

    input: dict[str, Any] | Command[Any] | None
    calls: Sequence[ToolCall] = ()
    files: Sequence[File] = ()
    answered: str = ""


@dataclass(frozen=True, slots=True)
class AlreadyFinished:
    """There is nothing to do: this turn was over before, with this answer and these files."""

    answer: AIMessage
    files: Sequence[File] = ()


@dataclass(frozen=True, slots=True)
class QuestionClosed:
    """The answer is to a question that is no longer open, while these are."""

    open: Sequence[Interrupt]


TurnEntry = GraphInput | AlreadyFinished | QuestionClosed


async def enter_turn(graph: Graph, config: RunnableConfig, turn: Turn, formatter: MessageFormatter) -> TurnEntry:
    """What is to be done for this turn, given what the checkpoint holds."""
    if turn.fresh and not turn.answers:
        return GraphInput({"messages": [formatter.format_message(item) for item in turn.inputs]})
    state = await graph.aget_state(config)
    messages: list[AnyMessage] = state.values.get("messages", [])
    keys = {item.message.key for item in turn.inputs}
    begin = max((index for index, message in enumerate(messages) if message.id in keys), default=-1)
    if begin >= 0 and (answer := _final_answer(messages[begin:])):
        return _finished_entry(messages, answer)
    if state.interrupts and begin < 0 and (given := _answer_texts(state, turn)):
        update = {"answered": [*keys]} if keys else None
        return GraphInput(
            Command(resume=given, update=update), _open_tool_calls(messages), answered=_answered_summary(state, given)
        )
    answered = bool(keys & set(state.values.get("answered", ())))
    if state.tasks and (begin >= 0 or answered):  # never state.next: it leaves out tasks whose writes are saved
        return GraphInput(None, _open_tool_calls(messages), _presented_in_turn(messages[max(begin, 0) :]))
    if answered and (answer := _final_answer(messages[-1:])):
        return _finished_entry(messages, answer)
    if state.interrupts and turn.answers:
        return QuestionClosed(state.interrupts)
    if state.tasks:
        await repair_state(graph, config)
    return GraphInput({"messages": _new_messages(turn, formatter)})


def _new_messages(turn: Turn, formatter: MessageFormatter) -> list[HumanMessage]:
    if not turn.inputs:  # clicks that answer nothing any more, and bring no message
        return [HumanMessage(answer.text, id=f"answer:{answer.id}") for answer in turn.answers]
    return [formatter.format_message(item) for item in turn.inputs]


def _answer_texts(state: StateSnapshot, turn: Turn) -> dict[str, str]:
    """What this turn says to each question that it answers, by interrupt: the text with the quotes and files of its
    message. What no answer names goes along with the last one; with no answer at all it is for the first question."""
    open_ = [interrupt.id for interrupt in state.interrupts]
    inputs = {item.message.key: item for item in turn.inputs}
    given: dict[str, list[str]] = {}
    for answer in turn.answers or (Answer(open_[0], "", ""),):
        item = inputs.pop(answer.key, None)
        if answer.id in open_:
            said = format_body(replace(item, message=replace(item.message, text=answer.text))) if item else answer.text
            given[answer.id] = [said]
    if given:
        given[next(reversed(given))] += [format_body(item) for item in inputs.values()]
    return {name: "\n\n".join(filter(None, said)) for name, said in given.items()}


def _answered_summary(state: StateSnapshot, given: Mapping[str, str]) -> str:
    """One line for each answer, when other questions stay open."""
    if len(given) == len(state.interrupts):
        return ""
    lines = [
        f"✓ {interrupt_question(each).question} → {given[each.id]}" for each in state.interrupts if each.id in given
    ]
    return "\n".join([*lines, "", "Still open:"])


def _presented_in_turn(messages: Sequence[AnyMessage]) -> list[File]:
    """What the latest turn in these messages handed over."""
    earlier = [number for number, message in enumerate(messages[:-1], 1) if _final_answer([message])]
    return list(presented_files(messages[earlier[-1] if earlier else 0 :]))


def _finished_entry(messages: Sequence[AnyMessage], answer: AIMessage) -> TurnEntry:
    """The turn was over, only its record was lost: what people wrote since is the next turn's. An answer that was cut
    off is worth a new try."""
    if answer is messages[-1] and answer.additional_kwargs.get(CUT_KEY):
        return GraphInput({"messages": [RemoveMessage(id=str(answer.id))]})
    return AlreadyFinished(answer, _presented_in_turn(messages[: messages.index(answer) + 1]))


def _final_answer(messages: Sequence[AnyMessage]) -> AIMessage | None:
    """The first message that ends a turn."""
    return next((m for m in messages if isinstance(m, AIMessage) and not m.tool_calls), None)


def _open_tool_calls(messages: Sequence[AnyMessage]) -> list[ToolCall]:
    """Tool calls of the last answer that have no result in the state yet."""
    answered = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            return [call for call in message.tool_calls if call["id"] not in answered]
    return []
