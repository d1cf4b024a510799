"""Keep every model call within the budgets, clean its answer, and count its tokens."""

from __future__ import annotations

from functools import partial

from langchain_core.messages import AIMessage, BaseMessage

from agent.core.policy import ModelCallHandler, ModelCallRequest, ModelCallResponse, model_answer
from agent.core.tool import AgentTool
from agent.models.answers import call_model
from agent.spending import text_tokens
from agent.token_estimates import messages_tokens


class AccountingPolicy:
    """Innermost of the model policies: the others see a clean answer, and every attempt is reserved and counted.

    `agent` names whose calls these are. A sub-agent shares the context, and so the meter, of the turn.
    """

    def __init__(self, agent: str) -> None:
        self._agent = agent

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Make the call. Raises BudgetExceeded if a budget does not allow it."""
        return await call_model(
            request.runtime.context.meter,
            request.model,
            partial(handler, request),
            model_answer,
            partial(_input_tokens, request),
            prompt=partial(_prompt, request),
            agent=self._agent,
        )


def _prompt(request: ModelCallRequest) -> list[BaseMessage]:
    return [*filter(None, [request.system_message]), *request.messages]


def _input_tokens(request: ModelCallRequest) -> int:
    """Estimate the input: what the provider counted last and what came after it; for a first call, all by length."""
    tokens = messages_tokens(request.messages)
    if any(isinstance(message, AIMessage) and message.usage_metadata for message in request.messages):
        return tokens
    tools = [tool.json_schema if isinstance(tool, AgentTool) else tool for tool in request.tools]
    system = request.system_message.text if request.system_message else ""
    return tokens + text_tokens(system) + sum(text_tokens(str(tool)) for tool in tools)
