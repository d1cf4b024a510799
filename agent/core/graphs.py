"""Build the graph in which an agent works: a call of the model, then the tools that it called, and so on.

LangChain's `create_agent` makes the same graph, and wraps every call for tracing and for middleware that Fawn does not
have ([decision 131](../docs/decisions/0131-own-graph-of-model-and-tools.md)).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Required, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime
from langgraph.types import Command, Send

from agent.core.context import TurnContext
from agent.core.policy import ModelCallRequest, ModelCallResponse, PolicyChain
from agent.models.streamed_answer import stream_answer

Graph = CompiledStateGraph[Any, TurnContext, Any, Any]

MODEL, TOOLS = "model", "tools"  # the nodes
RECURSION_LIMIT = 10_000  # supersteps; the policies end a turn long before


class AgentState(TypedDict):
    """The state of an agent."""

    messages: Required[Annotated[list[AnyMessage], add_messages]]


def build_graph(
    tools: Sequence[BaseTool],
    chain: PolicyChain,
    schema: type[AgentState] = AgentState,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
) -> Graph:
    """Return the graph of an agent with these tools, inside of these policies. The turn's route has its models."""
    node = ToolNode(list(tools), awrap_tool_call=chain.wrap_tool_call)
    offered: list[Any] = list(node.tools_by_name.values())
    call = chain.around_model(_ask_model)

    async def call_model(state: AgentState, runtime: Runtime[TurnContext]) -> Command[Any]:
        first = runtime.context.route[0].model
        response = await call(ModelCallRequest(first, state["messages"], offered, state, runtime))
        return Command(update={"messages": response.result}, goto=_next_nodes(response.result))

    graph = StateGraph(schema, context_schema=TurnContext)
    graph.add_node(MODEL, call_model, input_schema=schema, destinations=(TOOLS, MODEL))
    graph.add_node(TOOLS, node)
    graph.add_edge(START, MODEL)
    graph.add_edge(TOOLS, MODEL)
    return graph.compile(checkpointer=checkpointer).with_config({"recursion_limit": RECURSION_LIMIT})


async def _ask_model(request: ModelCallRequest) -> ModelCallResponse:
    """Call the model; what it says goes into the run's stream as it comes."""
    messages: Sequence[BaseMessage] = request.messages
    if request.system_message:
        messages = [request.system_message, *messages]
    rest: list[str] = []
    answer = await stream_answer(request.model, messages, request.tools, request.runtime.stream_writer, rest)
    return ModelCallResponse([answer], "".join(rest))


def _next_nodes(result: Sequence[BaseMessage]) -> Sequence[Send | str]:
    """Return a task for each call without a result; the model again if policies answered all of them."""
    last = max(index for index, message in enumerate(result) if isinstance(message, AIMessage))
    answer = result[last]
    calls = answer.tool_calls if isinstance(answer, AIMessage) else []
    answered = {message.tool_call_id for message in result[last:] if isinstance(message, ToolMessage)}
    return [Send(TOOLS, [call]) for call in calls if call["id"] not in answered] or ([MODEL] if calls else [])
